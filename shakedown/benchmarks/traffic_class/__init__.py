"""Proof of the traffic class where it counts: at the NIC that receives."""
