#!/bin/bash
#SBATCH --job-name="rfm_Allreduce_744d306c"
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:5:0
#SBATCH --partition=all
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --nodelist=n1,n2
#SBATCH --nodes=2
scontrol show hostnames "$SLURM_JOB_NODELIST" > /shared/shakedown/runs/20261120T132502Z/raw/collective.mpi_allreduce.a1/nodes.txt
srun --ntasks-per-node=1 --input=none --mpi=none /shared/shakedown/venv/bin/python -m shakedown.jobs.counters before /shared/shakedown/runs/20261120T132502Z/raw/collective.mpi_allreduce.a1
. /etc/shakedown/mpi.env
/shared/shakedown/venv/bin/python -m shakedown.jobs.output /shared/shakedown/runs/20261120T132502Z/raw/collective.mpi_allreduce.a1 mpi mpi_allreduce n1,n2 -- srun --mpi=pmix --wait=8 --cpu-bind=none --input=none /shared/shakedown/venv/bin/python -m shakedown.jobs.mpi_allreduce --min=8 --max=262144 --factor=32 --iterations=5
status=$?
srun --ntasks-per-node=1 --input=none --mpi=none /shared/shakedown/venv/bin/python -m shakedown.jobs.counters after /shared/shakedown/runs/20261120T132502Z/raw/collective.mpi_allreduce.a1
exit $status
