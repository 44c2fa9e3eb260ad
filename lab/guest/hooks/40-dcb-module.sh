# shellcheck shell=sh
# Runs on the build host with the guest's root folder as $1.
# Builds the module that gives the fabric NICs DCB state, then takes the compiler out again.
set -eu
root=$1
release=$(ls "$root/usr/lib/modules")
chroot "$root" apt-get -qq -y --no-install-recommends install gcc make "linux-headers-$release" >/dev/null
chroot "$root" make -s -C "/lib/modules/$release/build" M=/usr/src/shakedown-dcb modules >&2
install -D -m 644 "$root/usr/src/shakedown-dcb/shakedown_dcb.ko" "$root/usr/lib/modules/$release/extra/shakedown_dcb.ko"
chroot "$root" apt-get -qq -y --purge autoremove gcc make "linux-headers-$release" >/dev/null
rm -rf "$root/usr/src/shakedown-dcb"
chroot "$root" depmod "$release"
