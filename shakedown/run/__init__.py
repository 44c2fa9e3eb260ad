"""The run folder: layout, reading without trust, writing aside and renaming, redaction.

May import plan and below.
"""
