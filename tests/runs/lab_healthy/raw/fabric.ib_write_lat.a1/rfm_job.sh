#!/bin/bash
#SBATCH --job-name="rfm_Perftest_c917638a"
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:3:0
#SBATCH --partition=all
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --nodelist=n1,n2
#SBATCH --nodes=2
scontrol show hostnames "$SLURM_JOB_NODELIST" > /shared/shakedown/runs/20261120T132502Z/raw/fabric.ib_write_lat.a1/nodes.txt
srun --ntasks-per-node=1 --input=none --mpi=none /shared/shakedown/venv/bin/python -m shakedown.jobs.counters before /shared/shakedown/runs/20261120T132502Z/raw/fabric.ib_write_lat.a1
srun --mpi=none --wait=120 --cpu-bind=none --input=none /shared/shakedown/venv/bin/python -m shakedown.mesh.driver /shared/shakedown/runs/20261120T132502Z/raw/fabric.ib_write_lat.a1/spec.json /shared/shakedown/runs/20261120T132502Z/raw/fabric.ib_write_lat.a1
status=$?
[ $status -ne 3 ] || status=0
srun --ntasks-per-node=1 --input=none --mpi=none /shared/shakedown/venv/bin/python -m shakedown.jobs.counters after /shared/shakedown/runs/20261120T132502Z/raw/fabric.ib_write_lat.a1
exit $status
