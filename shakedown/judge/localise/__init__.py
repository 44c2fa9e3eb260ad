"""Which node, NIC, cable or switch explains what is slow, lost or missing."""
