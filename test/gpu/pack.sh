#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Packs all that test/gpu/cluster.sh needs on a machine with a GPU and nothing else into one archive: Kubernetes, containerd,
# runc, the network plugins, the lab, Sluice's images, its chart, rendered for a driver at /, and the tests' programs.
# Needs `make images lab tenant-images` and what machines of the lab need. The stage is left beside the archive.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

out=$PWD/bin/gpu
stage=$out/pack
rm -rf "$stage"
mkdir -p "$stage"/{bin/cni,images,chart,test}

programs=$(bin/lab build)
runtime=$(bin/lab build --machines | tail -n 1)
cp -a "$programs/." "$stage/bin/"
cp "$runtime"/* "$stage/bin/"
for path in /usr/sbin/runc /usr/bin/runc; do if [[ -x $path ]]; then cp "$path" "$stage/bin/runc"; fi; done
for dir in /usr/lib/cni /opt/cni/bin; do
  if [[ -x $dir/bridge ]]; then cp "$dir"/{bridge,host-local,loopback} "$stage/bin/cni/"; fi
done
cp "$(command -v busybox)" "$stage/bin/busybox"
(cd test/lab && CGO_ENABLED=0 ${GO:-go} build -trimpath -ldflags '-s -w' -o "$stage/bin/lab" ./cmd/lab)

# Layers without compression of their own: the archive's is better over all of them.
python3 test/gpu/unzipped.py bin/images/manager "$stage/images/manager.tar"
python3 test/gpu/unzipped.py bin/images/node-agent "$stage/images/node-agent.tar"

helm=$(hack/helm.sh)
values=(--namespace sluice-system --set image.tag=dev --set image.pullPolicy=Never --set agent.driverRoot=/)
"$helm" template sluice charts/sluice "${values[@]}" --no-hooks >"$stage/chart/release.yaml"
"$helm" template sluice charts/sluice "${values[@]}" --show-only templates/uninstall.yaml >"$stage/chart/uninstall.yaml"

cp test/e2e/images/tenant.c test/gpu/{cluster.sh,burn.cu,torch_limit.py,torch_burn.py} "$stage/test/"
if [[ -x test/e2e/images/build/tenant ]]; then cp test/e2e/images/build/tenant "$stage/test/tenant.fake"; fi

# One after another, so that what the programs have in common is packed once.
tar c -C "$stage" . | xz -T1 --x86 --lzma2="preset=${PRESET:-6},dict=${DICT:-256MiB}" >"$out/sluice-pack.tar.xz"
size=$(stat -c %s "$out/sluice-pack.tar.xz")
echo "bin/gpu/sluice-pack.tar.xz: $size bytes"
