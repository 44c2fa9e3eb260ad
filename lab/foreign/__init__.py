"""A cluster that is somebody else's: its packages, and its owner's scripts."""
