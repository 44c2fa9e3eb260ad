#!/bin/bash
#SBATCH --job-name="rfm_Pingpong_a6318d56"
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
scontrol show hostnames "$SLURM_JOB_NODELIST" > /shared/shakedown/runs/20261120T132502Z/raw/collective.mpi_pingpong.n1-n2.a1/nodes.txt
srun --ntasks-per-node=1 --input=none --mpi=none /shared/shakedown/venv/bin/python -m shakedown.jobs.counters before /shared/shakedown/runs/20261120T132502Z/raw/collective.mpi_pingpong.n1-n2.a1
. /etc/shakedown/mpi.env
/shared/shakedown/venv/bin/python -m shakedown.jobs.output /shared/shakedown/runs/20261120T132502Z/raw/collective.mpi_pingpong.n1-n2.a1 mpi mpi_pingpong n1,n2 -- srun --mpi=pmix --wait=8 --cpu-bind=none --input=none /shared/shakedown/venv/bin/python -m mpi4py.bench pingpong --no-stats --min-size=16384 --max-size=65536 --loop=10 --loop-large=10 --skip=2
status=$?
srun --ntasks-per-node=1 --input=none --mpi=none /shared/shakedown/venv/bin/python -m shakedown.jobs.counters after /shared/shakedown/runs/20261120T132502Z/raw/collective.mpi_pingpong.n1-n2.a1
exit $status
