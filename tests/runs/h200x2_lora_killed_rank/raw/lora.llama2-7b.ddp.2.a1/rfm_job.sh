#!/bin/bash
#SBATCH --job-name="rfm_Lora_c45e3ee4"
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1
#SBATCH --output=rfm_job.out
#SBATCH --error=rfm_job.err
#SBATCH --time=0:4:0
#SBATCH --partition=all
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --nodelist=gpu1
#SBATCH --nodes=1
#SBATCH --no-requeue
#SBATCH --gres=gpu:2
#SBATCH --exclusive
export NCCL_NVLS_ENABLE=0
scontrol show hostnames "$SLURM_JOB_NODELIST" > /tmp/sd-runs/killed/raw/lora.llama2-7b.ddp.2.a1/nodes.txt
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters before /tmp/sd-runs/killed/raw/lora.llama2-7b.ddp.2.a1
/var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.lora /tmp/sd-runs/killed/raw/lora.llama2-7b.ddp.2.a1 gpu1 -- srun --mpi=none --wait=30 --cpu-bind=none --input=none --kill-on-bad-exit=1 /opt/training/bin/python3 -m torch.distributed.run --nnodes=1 --nproc-per-node=2 --max-restarts=0 --standalone /var/lib/shakedown/stage/src/shakedown/trainer/launch.py /tmp/sd-runs/killed/raw/lora.llama2-7b.ddp.2.a1/spec.json /tmp/sd-runs/killed/raw/lora.llama2-7b.ddp.2.a1
status=$?
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters after /tmp/sd-runs/killed/raw/lora.llama2-7b.ddp.2.a1
exit $status
