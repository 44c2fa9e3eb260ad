"""Shakedown: acceptance tests for RoCE GPU clusters."""
