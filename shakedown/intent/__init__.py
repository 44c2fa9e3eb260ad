"""A site folder becomes one validated intent; everyone who reads the intent asks here.

May import nos and the rooms before it.
"""
