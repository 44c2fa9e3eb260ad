# shellcheck shell=sh
# On the head, when its nodes are up, as its owner: the maintenance that Alice measures in.
set -eu
left=120
until [ "$(sinfo --noheader --nodes=n1,n2 --format=%T --Node | sort -u)" = idle ]; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || { sinfo --Node >&2; exit 1; }
    sleep 1
done
scontrol create reservation ReservationName=maint_nov StartTime=now Duration=infinite \
    Flags=maint,ignore_jobs Nodes=n1,n2 Users=alice
