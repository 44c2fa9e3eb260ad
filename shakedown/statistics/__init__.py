"""Statistics that verdicts, alarms and comparisons rest on, pure. May import records."""
