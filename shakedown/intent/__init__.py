"""A site folder becomes one validated intent; all code that reads the intent asks here.

May import nos and the rooms before it.
"""
