"""What an OS9 switch prints of a port and of its neighbours, and what its counters are."""

# As a Z9100-ON with OS9 9.14(2.7) prints a port (sdn-sense/sense-dellos9-collection, fixture
# show_interfaces), with numbers of our own.
OS9_PORT = """hundredGigE 1/1 is up, line protocol is up
Description: n1, is up, line protocol is down
Hardware is DellEMCEth, address is 4c:76:25:e8:44:c2
    Current address is 4c:76:25:e8:44:c2
Non-qualified pluggable media present, QSFP28 type is 100GBASE-CR4-3M
    AutoNegotiation is ON
    Forward Error Correction(FEC) configured is default
    FEC status is ON
Interface index is 2097166
MTU 9216 bytes, IP MTU 9198 bytes
LineSpeed 100000 Mbit
Flowcontrol rx off tx off
Last clearing of "show interface" counters 1w2d20h
Queueing strategy: fifo
Input Statistics:
     978467 packets, 95990786 bytes
     98847 64-byte pkts, 794495 over 64-byte pkts, 85125 over 127-byte pkts
     879620 Multicasts, 23645 Broadcasts, 75202 Unicasts
     1 runts, 2 giants, 279 throttles
     3 CRC, 4 overrun, 5 discarded
     29 FEC bit errors, 8 FEC uncorrected code words
Output Statistics:
     6225369 packets, 448457157 bytes, 6 underruns
     1106361 Multicasts, 4949133 Broadcasts, 169875 Unicasts
     0 throttles, 7 discarded, 0 collisions, 9 wreddrops
Rate info (interval 299 seconds):
     Input 00.00 Mbits/sec,          1 packets/sec, 0.00% of line-rate
Time since last interface status change: 1w2d20h
"""
OS9_COUNTERS = {"rx_packets": 978467, "rx_bytes": 95990786, "rx_drops": 5, "rx_errors": 3 + 4}
OS9_COUNTERS |= {"fec_uncorrectable": 8, "tx_packets": 6225369, "tx_bytes": 448457157, "tx_errors": 6}
OS9_COUNTERS |= {"tx_drops": 7 + 9}

# As a Z9100-ON with OS9 9.14(2.7) prints them (sdn-sense/sense-dellos9-collection, fixture
# show_lldp_neighbors_detail). The first is a Linux host, the second a switch that sends no name.
OS9_LLDP = """========================================================================
 Local Interface Hu 1/1 has 1 neighbor
  Total Frames Out: 27530
  Total Unrecognized TLVs: 28647
  Next packet will be sent after 18 seconds
  The neighbors are given below:
  -----------------------------------------------------------------------

    Remote Chassis ID Subtype: Mac address (4)
    Remote Chassis ID:  0c:c4:7a:fb:44:14
    Remote Port Subtype:  Mac address (3)
    Remote Port ID:  24:8a:07:55:29:cc
    Remote Port Description:  fab0
    Local Port ID: hundredGigE 1/1
    Locally assigned remote Neighbor Index: 3
    Remote TTL:  120
    Remote System Name:  n1
    Remote System Desc:  CentOS Stream 8 Linux: with a colon
     #1 SMP PREEMPT Mon Feb 7 18:18:49 EST 2022 x86_64
    OrgUnknownTLVList:
          ((00-12-0f),  3,  5)
   ---------------------------------------------------------------------------

========================================================================
 Local Interface Hu 1/2 has 1 neighbor
  Total Frames Out: 98232
  The neighbors are given below:
  -----------------------------------------------------------------------

    Remote Chassis ID Subtype: Mac address (4)
    Remote Chassis ID:  34:17:eb:4c:1e:80
    Remote Port Subtype:  Interface name (5)
    Remote Port ID:  hundredGigE 1/32
    Local Port ID: hundredGigE 1/2
    Remote TTL:  120
   ---------------------------------------------------------------------------
"""
