"""A lab of leaves and spines: see :mod:`lab.fabric.topology`."""
