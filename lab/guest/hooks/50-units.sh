# Runs on the build host with the guest's root folder as $1.
# Everything that is no part of a cluster node costs boot seconds under emulation.
set -eu
root=$1
for unit in \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
    systemd-tmpfiles-clean.timer e2scrub_reap.service getty@tty1.service systemd-pstore.service \
    systemd-hwdb-update.service systemd-journal-catalog-update.service systemd-update-done.service \
    systemd-timesyncd.service systemd-networkd.service systemd-networkd-wait-online.service \
    systemd-networkd.socket systemd-binfmt.service systemd-rfkill.socket systemd-update-utmp.service \
    systemd-tpm2-setup.service systemd-tpm2-setup-early.service systemd-pcrphase.service \
    systemd-pcrmachine.service systemd-boot-update.service systemd-firstboot.service \
    systemd-udev-settle.service systemd-growfs-root.service systemd-homed.service \
    sys-kernel-debug.mount sys-kernel-tracing.mount dev-mqueue.mount dev-hugepages.mount \
    nfs-blkmap.service sshd-keygen.service modprobe@drm.service keyboard-setup.service console-setup.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done

# Installed but not enabled: the Ansible roles configure and enable these.
for unit in slurmctld slurmd munge chrony nfs-server; do
    rm -f "$root/etc/systemd/system/multi-user.target.wants/$unit.service"
done
rm -f "$root/etc/systemd/system/multi-user.target.wants/rpcbind.service" \
    "$root/etc/systemd/system/multi-user.target.wants/nfs-client.target" \
    "$root/etc/systemd/system/remote-fs.target.wants/nfs-client.target" \
    "$root/etc/systemd/system/sockets.target.wants/rpcbind.socket"
# Every guest would come up with the same munge key, baked into the image; the role makes one per cluster.
rm -f "$root/etc/munge/munge.key"

mkdir -p "$root/etc/systemd/system/sysinit.target.wants"
ln -sf /etc/systemd/system/shakedown-identity.service \
    "$root/etc/systemd/system/sysinit.target.wants/shakedown-identity.service"
ln -sf /usr/lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"

# One host key, handed in by the build; the others would be the same for every copy of the image.
rm -f "$root"/etc/ssh/ssh_host_rsa_key* "$root"/etc/ssh/ssh_host_ecdsa_key*
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/log/*.log "$root"/var/log/apt
