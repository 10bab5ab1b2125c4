#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The whole of Sluice on a machine with an NVIDIA GPU, its driver, nvcc, and nothing else: a Kubernetes of one node, Sluice from
# its images and its chart, and tenants in containers. It needs root, cgroup v2 or v1, and what `make pack` packed, unpacked:
#
#   tar xf bin/gpu/sluice-pack.tar.xz -C DIR && DIR/test/cluster.sh
#
# Nothing of it stays, and no setting of the GPU is changed. Results go to standard output, with a table at the end, and to $OUT;
# the exit status says whether all passed. FAKEGPU names the fake GPU's program for trying the script where there is no GPU: then
# what takes CUDA is built against the fake driver, and what takes a real GPU is left out. DRIVER_ROOT is the driver's, / by
# default.
#
# shellcheck disable=SC2317 # functions are called by others, and by a trap
set -uo pipefail
pack=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
OUT=${OUT:-$(mktemp -d)}
FAKEGPU=${FAKEGPU:-}
DRIVER_ROOT=${DRIVER_ROOT:-/}
work=$(mktemp -d /tmp/sluice.XXXXXX)
lab=$work/lab
export SLUICE_LAB_BIN=$pack/bin KUBECONFIG=
seconds=${CELL_SECONDS:-8}
failures=0
exec > >(tee -a "$OUT/cluster.txt") 2>&1

finish() {
  [[ -n ${KEEP:-} ]] && return
  if ((failures > 0)); then
    mkdir -p "$OUT/logs"
    cp -r "$lab/logs/." "$OUT/logs/" 2>/dev/null
    for log in "$lab"/machines/gpu/logs/*; do tail -c 200000 "$log" >"$OUT/logs/machine-$(basename "$log")"; done
    tar czf "$OUT/logs.tar.gz" -C "$OUT" logs && rm -rf "$OUT/logs"
  fi
  "$pack/bin/lab" down --dir "$lab" >/dev/null 2>&1
  rm -rf "$work"
}
trap finish EXIT

now() { date +%s%3N; }
begin=$(now)
took() { awk "BEGIN {printf \"%.1f s\", ($(now) - $1) / 1000}"; }
calc() { awk "BEGIN {printf \"%.2f\", $1}"; }
holds() { awk "BEGIN {exit !($1)}"; }

# row WHAT FIGURE [CONDITION of awk] adds a row to the table.
row() {
  local verdict=PASS
  holds "${3:-1}" || { verdict=FAIL; failures=$((failures + 1)); }
  printf '%-4s  %-52s  %s\n' "$verdict" "$1" "$2" | tee -a "$work/table"
}
within() { # SECONDS COMMAND...: waits until it succeeds
  local end=$(($(now) + $1 * 1000))
  shift
  until "$@" >"$work/last" 2>&1; do
    (($(now) < end)) || return 1
    sleep 0.1
  done
}
die() {
  row "$1" "$(took "$begin")" 0
  cat "$work/last"
  kubectl get pods -A -o wide
  kubectl get events -A | tail -20
  kubectl logs -n sluice-system daemonset/sluice-node-agent --tail=40
  exit 1
}
kubectl() { "$pack/bin/kubectl" "$@"; }
on_node() { "$pack/bin/lab" machine exec --dir "$lab" --name gpu -- "$@"; }
inside() { # POD COMMAND...
  local pod=$1
  shift
  kubectl exec "$pod" -- "$@"
}
word() { grep -oE "\"$1\":-?[0-9]+" <<<"$2" | head -1 | cut -d: -f2; }
rate() { grep -oE '"perSecond":\[[^]]*' <<<"$1" | cut -d[ -f2 | tr ',' '\n' | tail -n +3 | head -n -2 | awk '{s += $1} END {print (NR > 0 ? s / NR : 0)}'; }
runs() { [[ $(kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].state.running.startedAt}') != '' ]]; }
restarts() { kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].restartCount}'; }
real() { [[ -z $FAKEGPU ]]; }

# ---- programs and images of tenants, built on this machine against its driver
programs() {
  mkdir -p "$work/programs"
  cd "$work/programs" || return
  cp "$pack/bin/busybox" busybox
  printf 'root:x:0:0:root:/:/bin/sh\ntenant:x:1000:1000:tenant:/:/bin/sh\n' >passwd
  if real; then
    gcc -O2 -D_GNU_SOURCE -o tenant "$pack/test/tenant.c" -l:libcuda.so.1 || return
    nvcc -O3 -std=c++17 -arch=native -cudart static -Xcompiler -static-libstdc++,-static-libgcc -o burn "$pack/test/burn.cu" || return
    ./burn calibrate table || return
  else
    cp "$pack/test/tenant.fake" tenant
    # shellcheck disable=SC2016 # it is the script's
    printf '#!/bin/sh\nsleep "$1"; echo "{\\"error\\":0,\\"perSecond\\":[1,1,1,1,1,1,1,1],\\"longestGapUs\\":1}"\n' >burn
    chmod +x burn
    echo 1 >table
  fi
  # A loader that does not look where the library is named.
  python3 - <<'EOF' || return
content = open("/lib64/ld-linux-x86-64.so.2", "rb").read()
assert content.count(b"/etc/ld.so.preload\0") == 1
open("loader", "wb").write(content.replace(b"/etc/ld.so.preload\0", b"/etc/ld.so.nothing\0"))
EOF
  chmod +x loader
  local files=(/bin/busybox=busybox /etc/passwd=passwd /bin/tenant=tenant /bin/burn=burn /bin/loader=loader /table=table) applet lib
  for applet in sh cat env grep kill mkdir ps sleep su test ls; do files+=("/bin/$applet=@busybox"); done
  for lib in $(ldd tenant burn "$(command -v nvidia-smi || echo tenant)" "$(readlink -f "$(command -v python3)")" 2>/dev/null |
    grep -oE '/[^ ]+\.so[^ ]*' | grep -vE 'libcuda|libnvidia' | sort -u); do
    files+=("$lib=$(readlink -f "$lib")")
  done
  for lib in libpthread.so.0 libdl.so.2 librt.so.1 libm.so.6; do files+=("/lib/x86_64-linux-gnu/$lib=$(readlink -f /lib/x86_64-linux-gnu/$lib)"); done
  [[ " ${files[*]} " == *" /lib64/ld-linux-x86-64.so.2="* ]] || files+=("/lib64/ld-linux-x86-64.so.2=$(readlink -f /lib64/ld-linux-x86-64.so.2)")
  # On some machines nvidia-smi is a script that calls the true one.
  local smi python
  smi=$(find -L /usr/bin/nvidia-smi "$DRIVER_ROOT/usr/bin/nvidia-smi" /usr/local/nvidia/bin/nvidia-smi -size +64k 2>/dev/null | head -1)
  if [[ -n $smi ]]; then files+=("/driver/nvidia-smi=$(readlink -f "$smi")"); fi
  python=$(readlink -f "$(command -v python3)")
  files+=("$python=$python")
  for script in torch_limit torch_burn; do files+=("/test/$script.py=$pack/test/$script.py"); done
  mapfile -t files < <(printf '%s\n' "${files[@]}" | sort -u -t= -k1,1)
  "$pack/bin/lab" image tenant.tar --tag sluice.dev/test/gpu:1 --env PATH=/bin --env BURN_TABLE=/table "${files[@]}"
}

# tenant NAME MEMORY [COMPUTE] [FURTHER YAML OF THE SPEC] creates a pod that waits.
tenant() {
  kubectl apply -f - >/dev/null <<EOF
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 1
${4:-}
  containers:
  - name: main
    image: sluice.dev/test/gpu:1
    imagePullPolicy: Never
    command: [/bin/sh, -c, "mkdir -p /tmp; trap 'exit 0' TERM; while :; do sleep 0.2; done"]
    resources: {limits: {sluice.dev/gpu-memory: $2${3:+, sluice.dev/gpu-compute: $3}}}
${5:-}
EOF
}
# hold POD CHUNKS [LOADER] has a process in the pod take so many chunks of 64 MiB and keep them.
hold() {
  inside "$1" sh -c "${3:-} /bin/tenant --most $2 >/tmp/held 2>&1 & while ! grep -q chunks /tmp/held; do sleep 0.05; done; cat /tmp/held"
}
# held MIB: what nvidia-smi on the node says of the processes named tenant.
on_gpu() { nvidia-smi --query-compute-apps=name,used_memory --format=csv,noheader,nounits | awk -F', ' '$1 ~ /tenant|loader/ {s += $2} END {print s + 0}'; }
device() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0; }
# kill_agent ends the node's agent as a crash would: by its number on the node, on which there is no other.
# shellcheck disable=SC2016 # the command is the node's
kill_agent() { on_node sh -c 'kill -KILL $(grep -lx node-agent /proc/[0-9]*/comm 2>/dev/null | cut -d/ -f3)'; }

echo "== $(date -u +%FT%TZ) on $(uname -sr), $(nproc) cores, $(stat -fc %T /sys/fs/cgroup)"
if real; then nvidia-smi --query-gpu=name,driver_version,mig.mode.current,memory.total --format=csv,noheader; fi

(programs >"$work/programs.log" 2>&1; echo $? >"$work/programs.rc") &
building=$!
"$pack/bin/lab" up --machines --dir "$lab" --output json >"$work/up.json" || die "control plane"
KUBECONFIG=$(grep -oE '"kubeconfig": *"[^"]*' "$work/up.json" | cut -d'"' -f4)
row "API server ready after" "$(took "$begin")"
start=$(now)
more=(--host-pids)
if ! real; then more=(--fakegpu "$FAKEGPU" --board h200-141gb --gpus 1); DRIVER_ROOT=/run/nvidia/driver; fi
"$pack/bin/lab" machine up --dir "$lab" --name gpu --labels nvidia.com/gpu.present=true,node-restriction.kubernetes.io/gpu-pool=gpu \
  "${more[@]}" --image "$pack/images/manager.tar" --image "$pack/images/node-agent.tar" >/dev/null || { tail -n 30 "$lab"/machines/gpu/logs/*; die "node"; }
row "node ready, images there, after a further" "$(took "$start")"
wait "$building"
[[ $(<"$work/programs.rc") == 0 ]] || { cat "$work/programs.log"; die "programs of tenants"; }
"$pack/bin/lab" machine image --dir "$lab" --name gpu "$work/programs/tenant.tar" || die "image of tenants"

start=$(now)
kubectl create namespace sluice-system >/dev/null
sed "s#--driver-root=/\$#--driver-root=$DRIVER_ROOT#" "$pack/chart/release.yaml" >"$work/release.yaml"
kubectl apply --server-side -f "$work/release.yaml" >"$work/apply.log" 2>&1 || kubectl apply --server-side -f "$work/release.yaml" >"$work/apply.log" 2>&1 || { cat "$work/apply.log"; die "chart"; }
kubectl rollout status -n sluice-system deployment/sluice-manager --timeout=90s >/dev/null || die "manager"
kubectl rollout status -n sluice-system daemonset/sluice-node-agent --timeout=60s >/dev/null || die "node agent"
row "Sluice ready after a further" "$(took "$start")"
start=$(now)
pool() { # ACTION
  kubectl apply -f - >/dev/null <<EOF
apiVersion: sluice.dev/v1alpha1
kind: GPUPool
metadata: {name: shared}
spec:
  default: true
  nodeSelector: {matchLabels: {node-restriction.kubernetes.io/gpu-pool: gpu}}
  sharing: {mode: Software, compute: Cap, maxTenantsPerDevice: 16, onViolation: $1}
EOF
}
within 20 pool Report || die "pool"
within 30 tenant first 2Gi || die "first tenant"
within 60 runs first || die "first tenant"
row "first tenant runs after a further" "$(took "$start")"
row "from nothing to the first tenant, programs included" "$(took "$begin")"

# ---- memory
took_line=$(inside first /bin/tenant --exit)
echo "$took_line"
chunks=$(word chunks "$took_line")
row "2 GiB: held before the refusal; error; total told" "$((${chunks:-0} * 64)) MiB; $(word error "$took_line"); $(($(word total "$took_line") >> 20)) MiB" \
  "${chunks:-0} >= 20 && ${chunks:-0} < 32 && $(word error "$took_line") == 2 && $(word total "$took_line") == 2147483648"
for way in "env -i /bin/tenant --exit" "su tenant -c '/bin/tenant --exit'"; do
  line=$(inside first sh -c "$way")
  row "the same by ${way%% *}" "$(($(word chunks "$line") * 64)) MiB" "$(word chunks "$line") == ${chunks:-0}"
done
if real; then
  smi=$(inside first /driver/nvidia-smi --query-gpu=memory.total,memory.used --format=csv,noheader,nounits)
  row "nvidia-smi in the container: total, used" "$smi MiB" "$(cut -d, -f1 <<<"$smi") + 0 == 2048"
  before=$(device)
  tenant full 2Gi && within 60 runs full
  hold full 999
  row "a full share as the node's NVML sees it" "$(on_gpu) MiB, GPU $(($(device) - before)) MiB" "$(on_gpu) > 1500 && $(on_gpu) <= 2048"
  start=$(now)
  # shellcheck disable=SC2016 # the command is the container's
  inside full sh -c 'kill -9 $(ps | grep "[t]enant --most" | while read p r; do echo $p; done)'
  freed() { (($(on_gpu) == 0)) && (($(device) <= before + 16)); }
  within 20 freed
  row "memory back after its process is killed" "$(took "$start"), GPU $(($(device) - before)) MiB" "$(on_gpu) == 0"
  line=$(inside full /bin/tenant --exit)
  row "and can be taken again" "$(($(word chunks "$line") * 64)) MiB" "$(word chunks "$line") == ${chunks:-0}"
  kubectl delete pod full --wait=false >/dev/null
fi
tenant held 4Gi && within 60 runs held
hold held 20
full=$(word chunks "$(inside held /bin/tenant --exit)")
row "4 GiB, 1,280 MiB held: a second process can take" "$((${full:-0} * 64)) MiB" "${full:-0} >= 10 && ${full:-0} < 44"
still() { # WHEN
  local line
  line=$(inside held /bin/tenant --exit)
  row "$1: the tenant's limit, restarts" "$(($(word chunks "$line") * 64)) MiB, $(restarts held)" "$(word chunks "$line") == ${full:-0} && $(restarts held) == 0"
}

# ---- compute, the agent killed and upgraded under load
tenant one 8Gi 30 && tenant two 8Gi 60 && within 60 runs one && within 60 runs two
native=1
if real; then native=$(rate "$(BURN_TABLE=$work/programs/table "$work/programs/burn" 6 500)"); fi
echo "native: $native kernels of 500 us a second"
# pair WHAT SECONDS LEAST LEAST: both at once; what they have at least, and a gap of two seconds at most.
pair() {
  inside one /bin/burn "$2" 500 >"$work/one" &
  local pid=$!
  inside two /bin/burn "$2" 500 >"$work/two"
  wait "$pid"
  local a b
  a=$(calc "$(rate "$(<"$work/one")") * 100 / $native") b=$(calc "$(rate "$(<"$work/two")") * 100 / $native")
  if ! real; then a=30 b=60; fi
  row "$1: shares of 30 and 60 %" "$a %, $b %" "$a >= $3 && $a <= 32 && $b >= $4 && $b <= 62"
  row "$1: longest time without a kernel" "$(word longestGapUs "$(<"$work/one")") us, $(word longestGapUs "$(<"$work/two")") us" \
    "$(restarts one) + $(restarts two) == 0 && $(word error "$(<"$work/one")") + $(word error "$(<"$work/two")") == 0 &&
    $(word longestGapUs "$(<"$work/one")") < 2000000 && $(word longestGapUs "$(<"$work/two")") < 2000000"
}
pair "undisturbed" "$seconds" 28 58
# For the time until they notice, tenants wait for an arbiter that is gone.
pair "agent killed" 14 25 50 &
disturbed=$!
sleep 4
start=$(now)
kill_agent
within 60 kubectl rollout status -n sluice-system daemonset/sluice-node-agent --timeout=1s
tenant afterkill 2Gi && within 60 runs afterkill
row "agent killed: the next tenant runs after" "$(took "$start")"
wait "$disturbed"
failures=$(grep -c ^FAIL "$work/table")
still "agent killed"
init=$(grep -oE '"pid": *[0-9]+' "$lab/machines/gpu/machine.json" | grep -oE '[0-9]+' | head -1)
socket="/proc/$init/root"/run/containerd/containerd.sock
"$pack/bin/ctr" --address "$socket" -n k8s.io images tag sluice.dev/node-agent:dev sluice.dev/node-agent:next >/dev/null
pair "agent upgraded" 20 28 58 &
disturbed=$!
sleep 4
start=$(now)
kubectl set image -n sluice-system daemonset/sluice-node-agent node-agent=sluice.dev/node-agent:next >/dev/null
kubectl rollout status -n sluice-system daemonset/sluice-node-agent --timeout=60s >/dev/null
row "agent upgraded after" "$(took "$start")" "$(kubectl get pods -n sluice-system -l app.kubernetes.io/component=node-agent -o 'jsonpath={.items[*].spec.containers[0].image}' | grep -c next) == 1"
tenant afterupgrade 2Gi && within 60 runs afterupgrade
wait "$disturbed"
failures=$(grep -c ^FAIL "$work/table")
still "agent upgraded"
kubectl delete pod one two afterkill afterupgrade --wait=false >/dev/null

# ---- past the library
if real; then
  tenant bypass 2Gi && within 60 runs bypass
  violated() { kubectl get gpunode gpu -o 'jsonpath={.status.violations}' | grep -q .; }
  told() { kubectl get events --field-selector involvedObject.name=bypass -o 'jsonpath={.items[*].reason}' | grep -qE 'OverLimit|Unregistered|Violat'; }
  condition() { [[ $(kubectl get gpunode gpu -o 'jsonpath={.status.conditions[?(@.type=="LimitsViolated")].status}') == "$1" ]]; }
  hold bypass 48 /bin/loader
  start=$(now)
  echo "the node's NVML: $(nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv,noheader | tr '\n' ';')"
  within 20 violated; seen=$(took "$start")
  within 20 told; event=$(took "$start")
  within 20 condition True
  row "3 GiB past the library in 2 GiB: found; event; condition" "$seen; $event; $(took "$start")" "${event% s} <= 10"
  kubectl get gpunode gpu -o 'jsonpath={.status.violations}{"\n"}'
  kubectl get events --field-selector involvedObject.name=bypass -o 'jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}'
  start=$(now)
  pool Kill
  gone() { ! inside bypass sh -c 'ps | grep -q "[t]enant --most"'; }
  within 20 gone
  killed=$(took "$start")
  row "onViolation: Kill; the pod's restarts; the neighbour's" "$killed; $(restarts bypass); $(restarts held)" "${killed% s} <= 15 && $(restarts bypass) == 0 && $(restarts held) == 0"
  within 20 condition False
  row "the condition is over after a further" "$(took "$start")" "$(condition False && echo 1 || echo 0)"
  still "beside a violation"
  kubectl delete pod bypass --wait=false >/dev/null

  # ---- PyTorch of the host's, in a pod
  if python3 -c 'import torch' 2>/dev/null; then
    prefix=$(python3 -c 'import sys; print(sys.prefix)') stdlib=$(python3 -c 'import os; print(os.path.dirname(os.__file__))')
    top=/$(cut -d/ -f2-3 <<<"$prefix")
    volumes="  volumes:
  - {name: torch, hostPath: {path: $top}}
  - {name: stdlib, hostPath: {path: $stdlib}}
  - {name: hostlib, hostPath: {path: /usr/lib/x86_64-linux-gnu}}"
    mounts="    env: [{name: LD_LIBRARY_PATH, value: /hostlib}]
    volumeMounts:
    - {name: torch, mountPath: $top, readOnly: true}
    - {name: stdlib, mountPath: $stdlib, readOnly: true}
    - {name: hostlib, mountPath: /hostlib, readOnly: true}"
    tenant torch 10Gi "" "$volumes" "$mounts" && within 60 runs torch
    said=$(inside torch sh -c "export PATH=/driver:/bin; $prefix/bin/python3 /test/torch_limit.py 10240" 2>&1)
    echo "$said" | tail -n 12
    row "PyTorch in a pod of 10 GiB" "$(grep '^ok' <<<"$said" | sed 's/^ok *default: //')" "$(grep -c '^ok' <<<"$said")"
    kubectl delete pod torch --wait=false >/dev/null
  fi
fi

# ---- uninstalling, as helm does it
kubectl delete pod --all --timeout=60s >/dev/null
start=$(now)
kubectl apply -f "$pack/chart/uninstall.yaml" >/dev/null
within 120 kubectl wait -n sluice-system --for=condition=complete job/sluice-uninstall --timeout=1s || kubectl logs -n sluice-system job/sluice-uninstall
kubectl delete -f "$pack/chart/uninstall.yaml" --timeout=60s >/dev/null
grep -q . "$work/release.yaml" && kubectl delete -f "$work/release.yaml" --timeout=90s >"$work/delete.log" 2>&1
left=$(on_node find /run/sluice /run/sluice-mps /var/lib/sluice /var/run/cdi /var/lib/kubelet/plugins/gpu.sluice.dev /var/lib/kubelet/plugins_registry '!' -type d 2>/dev/null)
objects=$(kubectl get resourceslices,deviceclasses,resourceclaimtemplates,resourceclaims -A -o name 2>/dev/null)
mounts=$(on_node cat /proc/self/mountinfo | grep ' /run/sluice ')
row "uninstalled after; files, objects, mounts left" "$(took "$start"); $(grep -c . <<<"$left"), $(grep -c . <<<"$objects"), $(grep -c . <<<"$mounts")" \
  "$(grep -c . <<<"$left") + $(grep -c . <<<"$objects") + $(grep -c . <<<"$mounts") == 0"
[[ -z $left$objects$mounts ]] || echo "$left $objects $mounts"
if real; then row "the GPU's processes in the end" "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -c .), $(device) MiB in use" "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -c .) == 0"; fi

failures=$(grep -c ^FAIL "$work/table")
echo
echo "== $failures failures, $(took "$begin")"
cat "$work/table"
exit $((failures > 0))
