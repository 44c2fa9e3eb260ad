"""What a metric must reach and who says so: catalogue, files, lint, proposals.

May import physics, statistics, records.
"""
