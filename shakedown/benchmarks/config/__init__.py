"""Config stage: every setting of every node and NIC read back and held against the intent."""
