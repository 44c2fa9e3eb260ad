"""Incast and all-to-all: many senders at one NIC, where PFC and ECN must be at work."""
