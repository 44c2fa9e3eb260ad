#!/bin/bash
#SBATCH --job-name="rfm_GpuNode_28f839f5"
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:7:0
#SBATCH --partition=all
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --nodelist=gpu1
#SBATCH --nodes=1
#SBATCH --no-requeue
#SBATCH --gres=gpu:5
scontrol show hostnames "$SLURM_JOB_NODELIST" > /var/lib/shakedown/stage/runs/missing/raw/node.gpu_node.a1/nodes.txt
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters before /var/lib/shakedown/stage/runs/missing/raw/node.gpu_node.a1
srun --mpi=none --wait=120 --cpu-bind=none --input=none --gres=gpu:5 /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.gpu_node /var/lib/shakedown/stage/runs/missing/raw/node.gpu_node.a1
status=$?
[ $status -ne 3 ] || status=0
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters after /var/lib/shakedown/stage/runs/missing/raw/node.gpu_node.a1
exit $status
