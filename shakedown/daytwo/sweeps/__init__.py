"""Sweeps of collectives over two networks or configurations, side by side."""
