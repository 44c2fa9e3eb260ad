"""The mesh inside a Slurm job: one driver per node measures its share of all pairs, rails and directions.

The driver runs on compute nodes, where Python starts slowly: what it imports is the standard library and the
mesh's schedule. `matrices` and `simulated_run` are not part of it: they read and write the files of a run.
"""
