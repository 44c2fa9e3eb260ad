"""Programs that run inside Slurm jobs: standard library only, and mpi4py where MPI is measured."""
