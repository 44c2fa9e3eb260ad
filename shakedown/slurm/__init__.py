"""What Slurm says of jobs and nodes, and the few commands sent to it. May import records."""
