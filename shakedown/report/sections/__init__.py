"""Sections of the report beyond the standard tables, one file each."""
