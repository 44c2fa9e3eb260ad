"""What the drivers of NICs report: one parser a source. May import records."""
