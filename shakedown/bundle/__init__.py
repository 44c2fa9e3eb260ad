"""A run folder that is sealed and verifies on any machine. May import judge and below."""
