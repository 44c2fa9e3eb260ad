"""Physical ceilings and training arithmetic: pure functions with units in their names. May import records."""
