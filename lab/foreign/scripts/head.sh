# shellcheck shell=sh
# On the head, as its owner: shared folders with root_squash, accounting, Slurm's daemons.
set -eu
mkdir -p /home/alice/.ssh /scratch/alice/shakedown
cp /root/.ssh/authorized_keys /home/alice/.ssh/
chmod 700 /home/alice /home/alice/.ssh
chown -R alice:alice /home/alice /scratch/alice
cat >/etc/exports <<'END'
/home    10.20.0.0/24(rw,sync,root_squash,no_subtree_check)
/scratch 10.20.0.0/24(rw,sync,root_squash,no_subtree_check)
END
systemctl start nfs-server

systemctl start mariadb
mariadb <<'END'
CREATE DATABASE slurm_acct_db;
CREATE USER 'slurm'@'localhost' IDENTIFIED BY 'theirs';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
END
umask 077
cat >/etc/slurm/slurmdbd.conf <<'END'
AuthType=auth/munge
DbdHost=head
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageUser=slurm
StoragePass=theirs
StorageLoc=slurm_acct_db
END
chown slurm:slurm /etc/slurm/slurmdbd.conf
umask 022
systemctl start slurmdbd

wait_for() { # seconds, command...
    left=$1
    shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || { echo "this never answered: $*" >&2; exit 1; }
        sleep 1
    done
}
wait_for 120 sacctmgr --noheader show cluster
account() { sacctmgr --immediate --quiet "$@"; }
account add cluster theirs
account add qos accept MaxWall=00:20:00
account add account bench Description=acceptance Organization=theirs
account add account small Description=one-node-jobs Organization=theirs MaxTRES=node=1
account add account staff Description=owner Organization=theirs
account add user alice Account=bench QOS=normal,accept DefaultQOS=normal
account add user alice Account=small QOS=normal DefaultQOS=normal

echo 'SLURMD_OPTIONS="-N a1"' >/etc/default/slurmd
systemctl start slurmctld slurmd
wait_for 60 scontrol ping
scontrol update NodeName=a1 State=DRAIN Reason="fan of PSU 2, ticket 4711"
