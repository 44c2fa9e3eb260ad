"""One host as a map: which GPU is near which NIC, NUMA node and CPU. May import records."""
