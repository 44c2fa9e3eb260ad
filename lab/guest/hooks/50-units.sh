# shellcheck shell=sh
# Runs on the build host with the guest's root folder as $1.
# Everything that is no part of a cluster node costs boot seconds under emulation.
set -eu
root=$1
for unit in \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
    systemd-tmpfiles-clean.timer e2scrub_reap.service getty@tty1.service systemd-pstore.service \
    systemd-hwdb-update.service systemd-journal-catalog-update.service systemd-update-done.service \
    systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service \
    systemd-binfmt.service systemd-rfkill.socket systemd-tpm2-setup.service systemd-tpm2-setup-early.service \
    systemd-pcrphase.service systemd-pcrmachine.service systemd-boot-update.service systemd-firstboot.service \
    systemd-growfs-root.service systemd-logind.service systemd-random-seed.service \
    systemd-journal-flush.service systemd-sysusers.service systemd-udev-load-credentials.service \
    systemd-tmpfiles-setup-dev.service systemd-tmpfiles-setup-dev-early.service kmod-static-nodes.service \
    systemd-remount-fs.service systemd-hibernate-clear.service systemd-machine-id-commit.service \
    systemd-ask-password-console.path systemd-ask-password-wall.path systemd-creds.socket \
    systemd-sysext.socket systemd-initctl.socket systemd-bootctl.socket sshd-unix-local.socket \
    sshd-vsock.socket ldconfig.service modprobe@fuse.service modprobe@drm.service \
    sys-fs-fuse-connections.mount sys-kernel-debug.mount sys-kernel-tracing.mount dev-mqueue.mount \
    dev-hugepages.mount proc-sys-fs-binfmt_misc.automount nfs-blkmap.service sshd-keygen.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# Generators run at boot and at every daemon-reload; these have nothing to generate here.
mkdir -p "$root/etc/systemd/system-generators"
for generator in debug getty gpt-auto hibernate-resume rc-local run ssh system-update sysv tpm2; do
    ln -sf /dev/null "$root/etc/systemd/system-generators/systemd-$generator-generator"
done
# Started by its socket when somebody asks.
rm -f "$root/usr/lib/systemd/system/multi-user.target.wants/dbus.service"

# Installed but not enabled: the Ansible roles configure and enable these.
wants=$root/etc/systemd/system
for unit in multi-user.target.wants/slurmctld.service multi-user.target.wants/slurmd.service \
    multi-user.target.wants/munge.service multi-user.target.wants/chrony.service \
    multi-user.target.wants/nfs-server.service multi-user.target.wants/rpcbind.service \
    sockets.target.wants/rpcbind.socket multi-user.target.wants/nfs-client.target \
    remote-fs.target.wants/nfs-client.target; do
    rm -f "$wants/$unit"
done
# Every guest would come up with the same munge key, baked into the image; the role makes one per cluster.
rm -f "$root/etc/munge/munge.key"

mkdir -p "$wants/sysinit.target.wants"
ln -sf ../shakedown-identity.service "$wants/sysinit.target.wants/shakedown-identity.service"
mkdir -p "$wants/multi-user.target.wants"
ln -sf /usr/lib/systemd/system/console-getty.service "$wants/multi-user.target.wants/console-getty.service"
ln -sf ../shakedown-clock.service "$wants/multi-user.target.wants/shakedown-clock.service"
ln -sf /usr/lib/systemd/system/multi-user.target "$wants/default.target"

# One host key, handed in by the build; the others would be the same for every copy of the image.
rm -f "$root"/etc/ssh/ssh_host_rsa_key* "$root"/etc/ssh/ssh_host_ecdsa_key*
mkdir -p "$root/run/sshd"
chroot "$root" /usr/sbin/sshd -t
rmdir "$root/run/sshd"

rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/log/*.log "$root"/var/log/apt
# /etc and /var are up to date with /usr: nothing to rebuild at the first boot.
touch "$root/etc/.updated" "$root/var/.updated"
