"""Settings of one host: reads what is set, changes only what differs, records what was there before.

Runs on the managed host with its own Python (3.9 or newer) and nothing but the standard library: from
Ansible when a site is configured and from a systemd unit at boot and whenever a driver re-creates its device.
"""
