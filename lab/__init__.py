"""The virtual cluster: a head node, compute nodes and a leaf switch as QEMU virtual machines.

Everything here runs as an ordinary user.  The package needs only the standard library plus typer and rich
(for the command line), so that it starts fast and the inventory can import :mod:`lab.topology` alone.
"""
