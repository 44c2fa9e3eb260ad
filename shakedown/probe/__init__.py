"""Programs that look at a host and print JSON. Each is one file that needs only the host's own Python (3.9 or
newer) and its standard library, because it is sent there as it is; they read and never change anything.
"""
