// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-gpu/sluice/test/lab/binaries"
	"github.com/sluice-gpu/sluice/test/lab/image"
)

// PauseImage is the image that holds a pod's namespaces. It is imported before the first pod.
const PauseImage = "sluice.dev/pause:1"

// DriverRoot is where the fake driver lies on a machine, as a driver that the GPU operator installs does; GPUStatePath is
// where processes on the machine and in its containers find the fake GPUs, whatever their environment.
const (
	DriverRoot   = "/run/nvidia/driver"
	GPUStatePath = "/run/fakegpu/state"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	bootIDFile       = "/proc/sys/kernel/random/boot_id"
)

// containerdConfig is containerd's configuration, as of its version 2.
func containerdConfig(s *State) string {
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = %q

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = %q

[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
# Where the host's root lacks CAP_SYS_RESOURCE no container can be started otherwise.
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [%q]
conf_dir = %q

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = %q

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = %q
`, containerdSocket, PauseImage, s.Spec.Host.CNI, s.Dir.path("cni"), s.Dir.path("base-spec.json"), s.Spec.Host.Runc)
}

// kubeletConfig is the kubelet's configuration. JSON is YAML.
func kubeletConfig(s *State, authority string) any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"cgroupDriver": "cgroupfs", "cgroupRoot": s.cgroup(), "failCgroupV1": false,
		"failSwapOn": false, "containerRuntimeEndpoint": "unix://" + containerdSocket,
		// The host's disk is not the machine's to run out of.
		"evictionHard":                map[string]string{"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": authority},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		// Nothing answers there, at once: a look-up fails rather than waits.
		"clusterDNS": []string{serviceAddress}, "clusterDomain": "cluster.local", "resolvConf": "",
		// No Service but that of the API server has an address that leads anywhere, so there are no rules to keep.
		"makeIPTablesUtilChains": false,
		// What the host's owner set stays as it is.
		"localStorageCapacityIsolation": true, "registerNode": true, "enableServer": true,
		"nodeStatusUpdateFrequency": "5s", "syncFrequency": "10s", "volumeStatsAggPeriod": "0s",
		"logging": map[string]any{"format": "text"},
	}
}

// networkConfig is the pods' network: a bridge whose pods reach each other and the machine, and nothing beyond it.
func networkConfig(s Spec) any {
	plugin := map[string]any{
		"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": "/run/cni/networks",
			"ranges": [][]map[string]any{{{"subnet": s.PodNetwork().String()}}},
			"routes": []map[string]any{{"dst": "0.0.0.0/0"}},
		},
	}
	if s.HostNetwork {
		delete(plugin, "bridge")
		plugin["type"] = "ptp" // leaves nothing in the host's network once the pod is gone
	}
	return map[string]any{"cniVersion": "1.0.0", "name": "pods", "plugins": []any{plugin}}
}

// hookScript runs in each new container's mount namespace before it becomes the container's root. What the driver shows in
// /proc, and the boot's id, are the kernel's on a real node, and so are in each container; here they are put there.
func hookScript(d Dir) string {
	return fmt.Sprintf(`#!/bin/sh
set -eu
bundle=$(sed -n 's/.*"bundle": *"\([^"]*\)".*/\1/p')
proc=$bundle/rootfs/proc
mount --bind -o ro %[1]s "$proc/sys/kernel/random/boot_id"
if [ -d %[2]s ]; then mount --bind -o ro %[2]s "$proc/driver"; fi
`, d.bootID(), filepath.Join(d.DriverRoot(), "proc", "driver"))
}

// writeBaseSpec writes what every container's OCI spec starts from: containerd's own default, the fake GPUs' state where
// there are any, and the hook.
func writeBaseSpec(ctx context.Context, s *State) error {
	out, err := exec.CommandContext(ctx, filepath.Join(s.Spec.Runtime, "ctr"), "oci", "spec").Output()
	if err != nil {
		return fmt.Errorf("asking for containerd's default spec: %w", err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(out, &spec); err != nil {
		return fmt.Errorf("reading containerd's default spec: %w", err)
	}
	hook := s.Dir.path("container-hook")
	if err := os.WriteFile(hook, []byte(hookScript(s.Dir)), 0o755); err != nil {
		return fmt.Errorf("writing the containers' hook: %w", err)
	}
	spec["hooks"] = map[string]any{"createContainer": []any{map[string]any{
		"path": hook, "args": []string{"container-hook"}, "env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
	}}}
	if s.Spec.GPUs.FakeGPU != "" {
		mounts, ok := spec["mounts"].([]any)
		if !ok {
			return errors.New("containerd's default spec has no mounts")
		}
		spec["mounts"] = append(mounts, map[string]any{
			"destination": GPUStatePath, "type": "bind", "source": s.Dir.GPUState(), "options": []string{"bind", "rw"},
		})
	}
	return writeJSON(s.Dir.path("base-spec.json"), spec)
}

func writeJSON(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// writeConfigs writes all that a machine's programs read.
func writeConfigs(ctx context.Context, s *State, authority string) error {
	for _, dir := range []string{"cni", "logs", "log/pods", "log/containers", "lib/kubelet", "lib/containerd", "lib/sluice", "lib/cni", "etc-cdi"} {
		if err := os.MkdirAll(s.Dir.path(strings.Split(dir, "/")...), 0o755); err != nil {
			return fmt.Errorf("making the machine's directories: %w", err)
		}
	}
	if err := os.WriteFile(s.Dir.path("containerd.toml"), []byte(containerdConfig(s)), 0o644); err != nil {
		return fmt.Errorf("writing containerd's configuration: %w", err)
	}
	if err := writeJSON(s.Dir.path("kubelet.json"), kubeletConfig(s, authority)); err != nil {
		return err
	}
	if err := writeJSON(s.Dir.path("cni", "10-pods.conflist"), networkConfig(s.Spec)); err != nil {
		return err
	}
	pause := image.Spec{
		Name: PauseImage, Files: map[string]string{"/pause": filepath.Join(s.Spec.Runtime, binaries.Pause)}, Entrypoint: []string{"/pause"},
	}
	if err := image.Write(s.Dir.pause(), pause); err != nil {
		return fmt.Errorf("writing the image of pods' namespaces: %w", err)
	}
	return writeBaseSpec(ctx, s)
}
