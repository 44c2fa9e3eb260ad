"""The records that travel between the rooms, refusals, names, and files read as hostile.

Imports no other room.
"""
