"""Servers' power from their BMCs, by IPMI or Redfish, into a run's raw files."""
