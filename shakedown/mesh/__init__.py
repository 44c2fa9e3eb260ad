"""The mesh inside a Slurm job: one driver per node measures its share of all pairs, rails and directions.

Runs on compute nodes, where Python starts slowly: standard library and `shakedown.core.mesh` only.
"""
