# shellcheck shell=sh
# Runs on the build host with the guest's root folder as $1.
# FRR is on every machine of the image; shakedown-fabric starts it on the switches.
set -eu
root=$1
chroot "$root" systemctl disable frr >/dev/null 2>&1
sed -i 's/^bgpd=no$/bgpd=yes/' "$root/etc/frr/daemons"
grep -q '^bgpd=yes$' "$root/etc/frr/daemons"
ln -sf ../shakedown-fabric.service "$root/etc/systemd/system/multi-user.target.wants/shakedown-fabric.service"
