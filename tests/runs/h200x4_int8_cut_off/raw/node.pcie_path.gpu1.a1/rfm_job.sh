#!/bin/bash
#SBATCH --job-name="rfm_PciePath_040eb055"
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:5:0
#SBATCH --partition=all
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --nodelist=gpu1
#SBATCH --nodes=1
#SBATCH --no-requeue
#SBATCH --gres=gpu:4
scontrol show hostnames "$SLURM_JOB_NODELIST" > /var/lib/shakedown/stage/runs/trt4/raw/node.pcie_path.gpu1.a1/nodes.txt
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters before /var/lib/shakedown/stage/runs/trt4/raw/node.pcie_path.gpu1.a1
srun --mpi=none --wait=8 --cpu-bind=none --input=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.pcie_path /var/lib/shakedown/stage/runs/trt4/raw/node.pcie_path.gpu1.a1
status=$?
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters after /var/lib/shakedown/stage/runs/trt4/raw/node.pcie_path.gpu1.a1
exit $status
