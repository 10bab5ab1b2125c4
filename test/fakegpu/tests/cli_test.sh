#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program fakegpu: making nodes, telling of them, and driver roots.
set -u
build=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
export FAKEGPU_STATE=

says() { # sentence, then a command that has to succeed
    sentence=$1
    shift
    if "$@" > "$dir/out" 2>&1; then
        echo "ok    $sentence"
    else
        echo "FAIL  $sentence"
        sed 's/^/      /' "$dir/out"
        failures=$((failures + 1))
    fi
}
# shellcheck disable=SC2317 # says calls it
fg() { "$build/fakegpu" "$@"; }
# shellcheck disable=SC2317 # says calls it
refuses() { ! fg "$@" || return 1; }
# shellcheck disable=SC2317 # says calls it
shows() { fg show --state "$dir/s" | grep -q -- "$1"; }

says "a node is made" fg create --state "$dir/s" --board h100-80gb --gpus 2
says "not twice" refuses create --state "$dir/s" --board h100-80gb --gpus 2
says "unless it is forced" fg create --state "$dir/s" --board h100-80gb --gpus 2 --force --driver 570.1.2
says "the driver is the one that was asked for" shows "driver 570.1.2, 2 GPUs"
says "an unknown board is refused" refuses create --state "$dir/t" --board h999 --gpus 1
says "more GPUs than a node can have are refused" refuses create --state "$dir/t" --board h200-141gb --gpus 65
says "and nothing is left of it" test ! -e "$dir/t"
says "another board is added" fg add --state "$dir/s" --board a100-80gb --gpus 1 --mig on
says "with MIG mode on" shows "A100-SXM4-80GB  MIG on"
says "an instance is made by hand" fg mig --state "$dir/s" --gpu 2 --make 3g.40gb:4
says "and shown as a MIG device" shows "3g.40gb:4 .*MIG-"
says "where one is there is no room" refuses mig --state "$dir/s" --gpu 2 --make 4g.40gb:4
says "it is destroyed by hand" fg mig --state "$dir/s" --gpu 2 --destroy 3g.40gb:4
says "and not twice" refuses mig --state "$dir/s" --gpu 2 --destroy 3g.40gb:4
says "without MIG mode none is made" refuses mig --state "$dir/s" --gpu 0 --make 3g.40gb:4
says "no --gpu is refused where one is needed" refuses fault --state "$dir/s" --lost
says "a GPU that is not there is refused" refuses reset --state "$dir/s" --gpu 3
says "a process that is not there is refused" refuses attach --state "$dir/s" --gpu 0 --memory 1 --pid 4194304
says "unless it shall stay" fg attach --state "$dir/s" --gpu 0 --memory 1 --pid 4194304 --stay
says "then it is shown" shows "process 4194304"
says "and keeps the GPU from a reset" refuses reset --state "$dir/s" --gpu 0
says "a fault is set" fg fault --state "$dir/s" --call nvmlInit_v2 --return NVML_ERROR_UNKNOWN --count 3
says "and shown" shows "fault nvmlInit_v2: NVML_ERROR_UNKNOWN, 3 more"
fg boards > "$dir/boards"
says "the boards are listed" grep -q "^h200-141gb .* 143771 MiB" "$dir/boards"
says "a file of another kind is refused" refuses show --state "$0"
says "an unknown option is refused" refuses show --state "$dir/s" --nonsense
if command -v python3 > /dev/null; then
    fg show --state "$dir/s" --json > "$dir/json"
    says "show --json is JSON" python3 -m json.tool "$dir/json"
fi

says "a driver root is made" fg root --state "$dir/s" --root "$dir/root"
says "it has the libraries under the driver's version" test -f "$dir/root/usr/lib64/libnvidia-ml.so.570.1.2" -a -f "$dir/root/usr/lib64/libcuda.so.570.1.2"
says "and links to them" test "$(readlink "$dir/root/usr/lib64/libcuda.so.1")" = libcuda.so.570.1.2
says "it has a file for each GPU and the three common ones" test -e "$dir/root/dev/nvidia2" -a -e "$dir/root/dev/nvidiactl" -a -e "$dir/root/dev/nvidia-uvm" -a -e "$dir/root/dev/nvidia-uvm-tools" -a ! -e "$dir/root/dev/nvidia3"
says "minors of MIG instances are the real driver's" grep -qx "gpu1/gi9/ci0/access 220" "$dir/root/proc/driver/nvidia-caps/mig-minors"
says "each has its file" test -e "$dir/root/dev/nvidia-caps/nvidia-cap220" -a -e "$dir/root/dev/nvidia-caps/nvidia-cap407" -a ! -e "$dir/root/dev/nvidia-caps/nvidia-cap408"
says "made again it is the same" fg root --state "$dir/s" --root "$dir/root"
says "in the place of a directory there is no root" refuses root --state "$dir/s" --root "$dir/s"

[ $failures -eq 0 ] && echo "all hold" || echo "SOME DO NOT HOLD"
exit $failures
