"""Localisation of matrices that are all of one route."""

from shakedown.judge.localise.causes import localise
from shakedown.judge.localise.model import Route


def localise_one(matrices, fabric, readings=(), settings=None):
    """Return the causes."""
    return localise([Route(tuple(matrices), fabric)], readings, settings)
