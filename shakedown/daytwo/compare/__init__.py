"""Two runs before and after one change."""
