#!/bin/bash
#SBATCH --job-name="rfm_Nccl_d8fa9edf"
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
#SBATCH --gres=gpu:4
[ ! -r /etc/shakedown/mpi.env ] || . /etc/shakedown/mpi.env
[ ! -r /etc/shakedown/nccl.env ] || . /etc/shakedown/nccl.env
scontrol show hostnames "$SLURM_JOB_NODELIST" > /var/lib/shakedown/stage/runs/mpirun/raw/collective.nccl0.mpirun.1x.gpu1.a1/nodes.txt
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters before /var/lib/shakedown/stage/runs/mpirun/raw/collective.nccl0.mpirun.1x.gpu1.a1
/var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.nccl /var/lib/shakedown/stage/runs/mpirun/raw/collective.nccl0.mpirun.1x.gpu1.a1
status=$?
[ $status -ne 3 ] || status=0
srun --ntasks-per-node=1 --input=none --mpi=none /var/lib/shakedown/stage/venv/bin/python -m shakedown.jobs.counters after /var/lib/shakedown/stage/runs/mpirun/raw/collective.nccl0.mpirun.1x.gpu1.a1
exit $status
