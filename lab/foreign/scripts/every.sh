# shellcheck shell=sh
# On the head and the compute nodes, as their owner: users, MUNGE, and one Slurm for all.
# MUNGE_KEY, in base64, is set before this by setup.py.
set -eu
groupadd --gid 2001 alice
useradd --uid 2001 --gid 2001 --no-create-home --shell /bin/bash alice
useradd --uid 2002 --user-group --no-create-home --shell /bin/bash bob
usermod --password '*' alice # keys only

umask 077
echo "$MUNGE_KEY" | base64 -d >/etc/munge/munge.key
chown munge:munge /etc/munge/munge.key
umask 022
systemctl start munge

mkdir -p /etc/slurm /var/log/slurm /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
chown slurm:slurm /var/log/slurm /var/lib/slurm/slurmctld
cat >/etc/slurm/slurm.conf <<'END'
# The site's own. Nobody but its owner writes here.
ClusterName=theirs
SlurmctldHost=head(10.20.0.10)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/affinity,task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=60
SlurmdTimeout=120
KillWait=5
PropagateResourceLimitsExcept=MEMLOCK
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=head
AccountingStorageEnforce=associations,limits,qos,safe
JobAcctGatherType=jobacct_gather/none
DisableRootJobs=YES
EnforcePartLimits=ALL
SchedulerParameters=sched_interval=2,bf_interval=5
NodeName=n[1-2] CPUs=1 RealMemory=600 State=UNKNOWN
# An old machine of theirs, which is none of ours; its daemon runs on the head.
NodeName=a1 NodeHostname=head NodeAddr=10.20.0.10 CPUs=1 RealMemory=600 State=UNKNOWN
PartitionName=gpu Nodes=n[1-2],a1 Default=YES MaxTime=20 State=UP
PartitionName=staff Nodes=a1 MaxTime=UNLIMITED AllowAccounts=staff State=UP
END
cat >/etc/slurm/cgroup.conf <<'END'
CgroupPlugin=cgroup/v2
ConstrainCores=yes
END
