"""Intent x references: the cells that must be measured, and the jobs that measure them.

May import references, intent and below.
"""
