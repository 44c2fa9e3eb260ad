"""Switch operating systems: one file each, holding everything known of it; `registry` lists them.

May import records.
"""
