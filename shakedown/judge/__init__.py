"""Measurements become verdicts, without input or output. May import collect and below."""
