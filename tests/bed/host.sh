#!/bin/sh
# One host: its root in a mount namespace of its own, then boot after boot until it is powered off or killed.
# usage: unshare --mount --propagation private host.sh LOWER FOLDER MACHINE HOSTNAME BRIDGE CGROUP...
set -eu
lower=$1 folder=$2 machine=$3 hostname=$4 bridge=$5
shift 5
for group in "$@"; do echo $$ >"$group/cgroup.procs"; done
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$folder/up,workdir=$folder/work" "$folder/root"
while :; do
  ip link del "vb-$machine" 2>/dev/null || true # what a killed boot left
  code=0
  systemd-nspawn --quiet --directory="$folder/root" --machine="$machine" --hostname="$hostname" \
    --keep-unit --register=no --resolv-conf=off --timezone=off --link-journal=no \
    --network-bridge="$bridge" --boot </dev/null || code=$?
  echo "gpuform bed: ended with $code"
  [ "$code" -eq 133 ] || exit "$code" # 133: a reboot was asked for
done
