# shellcheck shell=sh
# On a compute node, as its owner: the shared folders, RoCE, Slurm's daemon.
set -eu
mkdir -p /home /scratch
cat >>/etc/fstab <<'END'
head:/home    /home    nfs rw,hard,vers=4.2 0 0
head:/scratch /scratch nfs rw,hard,vers=4.2 0 0
END
mount /home
mount /scratch
modprobe rdma_rxe
for rail in 0 1; do
    rdma link add "rxe$rail" type rxe netdev "fab$rail"
done
systemctl start slurmd
