"""The mesh inside a Slurm job: one driver a node measures its share of all pairs, rails and directions."""
