"""What runs inside a job on any node: standard library only.

May import nothing but the standard-library parts of records.
"""
