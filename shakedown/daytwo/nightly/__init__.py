"""A part of the cluster every night."""
