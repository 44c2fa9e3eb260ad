#!/bin/sh
# Install what is missing: Debian or Ubuntu packages, and the locked Python environment in .venv.
# Everything that is there already is left alone; a second run takes a second.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "setup: $1" >&2
    exit 2
}

# shellcheck source=/dev/null
. /etc/os-release 2>/dev/null || fail "no /etc/os-release: Debian 12 or newer, or Ubuntu 24.04 or newer, is needed"
case "${ID:-} ${ID_LIKE:-}" in
*debian*) ;;
*) fail "${PRETTY_NAME:-this system} is not supported -- use Debian 12 or newer, or Ubuntu 24.04 or newer" ;;
esac

# Run a command and say every 15 s that it still runs, with the last line of its log.
patiently() {
    what=$1 log=$2 waited=0
    shift 2
    "$@" >"$log" 2>&1 &
    child=$!
    while kill -0 "$child" 2>/dev/null; do
        sleep 1
        waited=$((waited + 1))
        [ $((waited % 15)) -ne 0 ] || echo "setup: $what, $waited s: $(tail -n 1 "$log" | cut -c 1-80)"
    done
    wait "$child"
}

install_packages() {
    # shellcheck disable=SC2086  # the list is meant to be split
    $root apt-get update && $root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}

# One package a line, the program or file that tells that it is there first.
missing=""
while read -r proof package; do
    case "$proof" in
    "" | "#"*) continue ;;
    /*) [ -e "$proof" ] || missing="$missing $package" ;;
    *) PATH="$PATH:/usr/sbin:/sbin" command -v "$proof" >/dev/null || missing="$missing $package" ;;
    esac
done <lab/host-packages.txt
# Its place depends on the version of Python.
python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"

if [ -n "$missing" ]; then
    root=""
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "missing:$missing -- install them as root, or install sudo"
        root=sudo
    fi
    echo "setup: installing$missing"
    log=$(mktemp)
    if ! patiently "installing packages" "$log" install_packages; then
        reason=$(grep -E '^(E|Err)' "$log" | tail -n 1)
        rm -f "$log"
        fail "apt-get could not install$missing -- ${reason:-is a package mirror reachable?}"
    fi
    rm -f "$log"
fi

python=python3
$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$($python --version) is too old -- Python 3.11 is needed"

# The stamp names the lock and the interpreter, so that either's change makes the environment anew.
stamp=$( { cat requirements/controller.txt pyproject.toml && $python --version; } | sha256sum | cut -d ' ' -f 1)
if [ ! -e .venv/stamp ] || [ "$(cat .venv/stamp)" != "$stamp" ]; then
    echo "setup: making .venv from requirements/controller.txt"
    [ -x .venv/bin/python ] || $python -m venv .venv
    # uv's own entry of the lock, hashes and all: what installs everything else is checked as everything else is.
    uv=$(mktemp)
    sed -n '/^uv==/,/^[^ ]/{/^uv==/p;/^ .*--hash=/p;}' requirements/controller.txt >"$uv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r "$uv" ||
        { rm -f "$uv"; fail "pip could not install uv with the lock's hashes -- is a package index reachable?"; }
    rm -f "$uv"
    # Compiled here once: where PYTHONDONTWRITEBYTECODE is set, every command would compile 400 modules again.
    log=$(mktemp)
    patiently "installing Python packages" "$log" .venv/bin/uv pip install --compile-bytecode --python .venv/bin/python \
        --require-hashes --no-deps -r requirements/controller.txt ||
        { reason=$(grep -m 1 -i error "$log") || true; rm -f "$log"
            fail "uv could not install the locked packages -- ${reason:-is a package index reachable?}"; }
    rm -f "$log"
    .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --editable . ||
        fail "uv could not install shakedown itself"
    echo "$stamp" >.venv/stamp
fi
