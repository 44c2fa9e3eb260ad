"""What Slurm says of jobs and nodes, and the few things that it is told. May import records."""
