#!/bin/bash
#SBATCH --job-name="rfm_TorchCollectives_829eb03e"
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:6:0
#SBATCH --partition=all
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --nodelist=gpu1
#SBATCH --nodes=1
#SBATCH --no-requeue
#SBATCH --gres=gpu:4
scontrol show hostnames "$SLURM_JOB_NODELIST" > /var/lib/shakedown/stage/runs/A/raw/collective.torch.nccl.a1/nodes.txt
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters before /var/lib/shakedown/stage/runs/A/raw/collective.torch.nccl.a1
/var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.torch_job /var/lib/shakedown/stage/runs/A/raw/collective.torch.nccl.a1
status=$?
[ $status -ne 3 ] || status=0
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters after /var/lib/shakedown/stage/runs/A/raw/collective.torch.nccl.a1
exit $status
