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
go=${GO:-go}
kubernetes=$(awk '$1 == "k8s.io/kubernetes" {print $2; exit}' test/lab/go.mod)
rm -rf "$stage"
mkdir -p "$stage"/{bin/cni,images,chart,test}

# Kubernetes and the lab as one program, containerd and ctr as another: most of each pair is the same. Whoever is called by
# another's name is that one.
flags="-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes -X k8s.io/component-base/version.gitMajor=1"
flags+=" -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$kubernetes")"
(cd test/lab && CGO_ENABLED=0 "$go" build -buildvcs=false -trimpath -tags cluster -ldflags "$flags" -o "$stage/bin/lab" ./cmd/lab)
for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do ln -s lab "$stage/bin/$name"; done

runtime=$(bin/lab build --machines | tail -n 1)
version=${runtime##*/containerd-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
source=$("$go" mod download -json "github.com/containerd/containerd/v2@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
# With containerd's own requirements, so that it is what it was released as.
sed 's/^module .*/module packed/' "$source/go.mod" >"$scratch/go.mod"
printf '\nrequire github.com/containerd/containerd/v2 %s\n' "$version" >>"$scratch/go.mod"
cat "$source/go.sum" >"$scratch/go.sum"
cat >"$scratch/main.go" <<'EOF'
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/containerd/containerd/v2/cmd/ctr/app"
)

func main() {
	run := command.App().Run
	if filepath.Base(os.Args[0]) == "ctr" {
		run = app.New().Run
	}
	if err := run(context.Background(), os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
EOF
(cd "$scratch" && CGO_ENABLED=0 GOFLAGS=-mod=mod GOWORK=off "$go" build -buildvcs=false -trimpath -tags no_btrfs,no_devmapper,no_zfs \
  -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$version" -o "$stage/bin/containerd" .)
ln -s containerd "$stage/bin/ctr"
cp "$runtime"/{containerd-shim-runc-v2,pause} "$stage/bin/"
for path in /usr/sbin/runc /usr/bin/runc; do if [[ -x $path ]]; then cp "$path" "$stage/bin/runc"; fi; done
for dir in /usr/lib/cni /opt/cni/bin; do
  if [[ -x $dir/bridge ]]; then cp "$dir"/{bridge,host-local,loopback} "$stage/bin/cni/"; fi
done
cp "$(command -v busybox)" "$stage/bin/busybox"

# Layers without compression of their own: the archive's is better over all of them.
python3 test/gpu/unzipped.py bin/images/manager "$stage/images/manager.tar"
python3 test/gpu/unzipped.py bin/images/node-agent "$stage/images/node-agent.tar"

helm=$(hack/helm.sh)
values=(--namespace sluice-system --set image.tag=dev --set image.pullPolicy=Never --set agent.driverRoot=/)
"$helm" template sluice charts/sluice "${values[@]}" --no-hooks >"$stage/chart/release.yaml"
"$helm" template sluice charts/sluice "${values[@]}" --show-only templates/uninstall.yaml >"$stage/chart/uninstall.yaml"

cp test/e2e/images/tenant.c interceptor/include/sluice_abi.h test/gpu/{cluster.sh,burn.cu,torch_limit.py,torch_burn.py} "$stage/test/"
if [[ -x test/e2e/images/build/tenant ]]; then cp test/e2e/images/build/tenant "$stage/test/tenant.fake"; fi

# One after another, so that what the programs have in common is packed once.
tar c -C "$stage" . | xz -T1 --x86 --lzma2="preset=${PRESET:-6},dict=${DICT:-256MiB}" >"$out/sluice-pack.tar.xz"
size=$(stat -c %s "$out/sluice-pack.tar.xz")
echo "bin/gpu/sluice-pack.tar.xz: $size bytes"
