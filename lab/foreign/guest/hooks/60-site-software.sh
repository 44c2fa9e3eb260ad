# shellcheck shell=sh
# Runs on the build host with the guest's root folder as $1.
# The site keeps MPI and UCX where many sites do: in folders of their own, which only a module names.
set -eu
root=$1
system=$root/usr/lib/x86_64-linux-gnu
mpi=$root/opt/site/openmpi/5.0.7
ucx=$root/opt/site/ucx/1.18
modules=$root/opt/site/modulefiles
mkdir -p "$mpi/bin" "$mpi/lib" "$mpi/python" "$ucx/bin" "$ucx/lib" "$modules/openmpi" "$modules/ucx"
for name in libmpi libopen-pal liboshmem libprrte; do
    mv "$system/$name"*.so.* "$mpi/lib/"
done
rm -rf "$system/openmpi"
for name in mpirun mpiexec ompi_info prte prted prterun prun pterm; do
    rm -f "$root/etc/alternatives/$name"
    # prterun is a link to prte, which is gone by then.
    if [ -e "$root/usr/bin/$name.openmpi" ] || [ -L "$root/usr/bin/$name.openmpi" ]; then
        mv "$root/usr/bin/$name.openmpi" "$mpi/bin/$name"
        rm -f "$root/usr/bin/$name"
    elif [ -e "$root/usr/bin/$name" ] || [ -L "$root/usr/bin/$name" ]; then
        mv "$root/usr/bin/$name" "$mpi/bin/$name"
    fi
done
mv "$root/usr/lib/python3/dist-packages/mpi4py" "$mpi/python/"
for name in libucm libucp libucs libuct; do
    mv "$system/$name"*.so.* "$ucx/lib/"
done
mv "$system/ucx" "$ucx/lib/"
mv "$root"/usr/bin/ucx_* "$ucx/bin/"

cat >"$modules/ucx/1.18.lua" <<'END'
help([[UCX of the site]])
prepend_path("PATH", "/opt/site/ucx/1.18/bin")
prepend_path("LD_LIBRARY_PATH", "/opt/site/ucx/1.18/lib")
END
cat >"$modules/openmpi/5.0.7.lua" <<'END'
help([[OpenMPI of the site, with mpi4py]])
depends_on("ucx/1.18")
prepend_path("PATH", "/opt/site/openmpi/5.0.7/bin")
prepend_path("LD_LIBRARY_PATH", "/opt/site/openmpi/5.0.7/lib")
prepend_path("PYTHONPATH", "/opt/site/openmpi/5.0.7/python")
setenv("OPAL_BINDIR", "/opt/site/openmpi/5.0.7/bin")
END
# Where Debian's Lmod looks, beside its own folders.
mkdir -p "$root/etc/lmod"
echo /opt/site/modulefiles >>"$root/etc/lmod/modulespath"
chroot "$root" ldconfig

# Installed on all, started only where the site's setup says so.
for unit in mariadb slurmdbd; do
    chroot "$root" systemctl disable "$unit" >/dev/null 2>&1
done
