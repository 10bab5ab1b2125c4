// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"
)

// driverConfig is how the test's driver, this very test program started as a node's agent, gets to know its node.
type driverConfig struct {
	Node, Kubeconfig, Plugins, Registry, CDI, Dir string
}

const (
	driverName = "toy.example.com"
	// driverVariable holds the driver's configuration; a test program that has it is a driver.
	driverVariable = "LAB_TEST_DRIVER"
	// driverTemplate is the configuration before the lab fills in the node's own.
	driverTemplate = `{"Node":"{{node}}","Kubeconfig":"{{kubeconfig}}","Plugins":"{{plugins}}","Registry":"{{registry}}","CDI":"{{cdi}}","Dir":"{{dir}}"}`
)

// driver has a few devices that do nothing, and leaves a file for every claim it has prepared.
type driver struct{ config driverConfig }

func runDriver(text string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d := driver{}
	if err := json.Unmarshal([]byte(text), &d.config); err != nil {
		return err
	}
	rest, err := clientcmd.BuildConfigFromFlags("", d.config.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	plugins := filepath.Join(d.config.Plugins, driverName)
	for _, dir := range []string{plugins, filepath.Dir(d.prepared(""))} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(driverName), kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(d.config.Node), kubeletplugin.PluginDataDirectoryPath(plugins),
		kubeletplugin.RegistrarDirectoryPath(d.config.Registry))
	if err != nil {
		return err
	}
	defer helper.Stop()
	devices := []resourceapi.Device{{Name: "dev-0"}, {Name: "dev-1"}, {Name: "dev-2"}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		d.config.Node: {Slices: []resourceslice.Slice{{Devices: devices}}},
	}}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (d driver) prepared(uid types.UID) string {
	return filepath.Join(d.config.Dir, "prepared", "claim-"+string(uid))
}

// PrepareResourceClaims makes a CDI device that sets an environment variable.
func (d driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		result := kubeletplugin.PrepareResult{}
		for i, device := range claim.Status.Allocation.Devices.Results {
			id := fmt.Sprintf("%s-%d", claim.UID, i)
			spec := fmt.Sprintf(`{"cdiVersion":"0.8.0","kind":"example.com/toy","devices":[{"name":%q,"containerEdits":{"env":["TOY=%s"]}}]}`, id, device.Device)
			if err := os.WriteFile(filepath.Join(d.config.CDI, id+".json"), []byte(spec), 0o644); err != nil {
				return nil, err
			}
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{device.Request}, PoolName: device.Pool, DeviceName: device.Device, CDIDeviceIDs: []string{"example.com/toy=" + id},
			})
		}
		if err := os.WriteFile(d.prepared(claim.UID), nil, 0o644); err != nil {
			return nil, err
		}
		results[claim.UID] = result
	}
	return results, nil
}

// UnprepareResourceClaims removes what was made.
func (d driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		specs, err := filepath.Glob(filepath.Join(d.config.CDI, string(claim.UID)+"-*.json"))
		for _, spec := range specs {
			_ = os.Remove(spec)
		}
		_ = os.Remove(d.prepared(claim.UID))
		results[claim.UID] = err
	}
	return results, nil
}

func (d driver) HandleError(_ context.Context, err error, msg string) {
	fmt.Fprintln(os.Stderr, msg, err)
}

// toyClass makes all of the driver's devices available, by class and as an extended resource.
func toyClass() *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{}
	class.Name = driverName
	class.Spec.ExtendedResourceName = ptr.To("example.com/toy")
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: fmt.Sprintf("device.driver == %q", driverName),
	}}}
	return class
}

func (d driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
