"""Localisation of matrices that are all of one route."""

from __future__ import annotations

from shakedown.core.localise import localise
from shakedown.core.localise_model import Route


def localise_one(matrices, fabric, readings=(), settings=None):
    """Return the causes."""
    return localise([Route(tuple(matrices), fabric)], readings, settings)
