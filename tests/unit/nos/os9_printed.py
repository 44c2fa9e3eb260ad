"""What an OS9 switch prints of a port and of its neighbours, and what its counters are."""

from pathlib import Path

# As a Z9100-ON with OS9 9.14(2.7) prints a port (sdn-sense/sense-dellos9-collection, fixture
# show_interfaces), with numbers of our own.
OS9_PORT = (Path(__file__).parent / "printed/os9_port.txt").read_text()
OS9_COUNTERS = {"rx_packets": 978467, "rx_bytes": 95990786, "rx_drops": 5, "rx_errors": 3 + 4}
OS9_COUNTERS |= {"fec_uncorrectable": 8, "tx_packets": 6225369, "tx_bytes": 448457157, "tx_errors": 6}
OS9_COUNTERS |= {"tx_drops": 7 + 9}

# As a Z9100-ON with OS9 9.14(2.7) prints them (sdn-sense/sense-dellos9-collection, fixture
# show_lldp_neighbors_detail). The first is a Linux host, the second a switch that sends no name.
OS9_LLDP = (Path(__file__).parent / "printed/os9_lldp.txt").read_text()
