"""What makes a reading or an output count, and the chain of order, seal and attestation."""
