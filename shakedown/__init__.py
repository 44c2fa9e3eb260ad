"""Shakedown: acceptance tests for RoCE GPU clusters."""

__version__ = "0.1.0"
