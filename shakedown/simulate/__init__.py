"""A fabric that does not exist, measured as if it did. May import judge and below."""
