"""Which nodes to take out of service and which to give back."""
