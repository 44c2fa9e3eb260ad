"""Switch operating systems: what each reports, its cable ends, what it can and cannot tell.

May import records.
"""
