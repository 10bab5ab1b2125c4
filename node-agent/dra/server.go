// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Options say where kubelet is and who answers it.
type Options struct {
	NodeName string
	// PluginsDir is kubelet's directory of plugins, below which the driver has its own; RegistrarDir is where kubelet
	// looks for new ones. Both are the same inside and outside of the agent's container.
	PluginsDir, RegistrarDir string
	// StateDir is where instances of the driver keep out of each other's way.
	StateDir string
	// PodUID is the agent's pod. Where it is set, a new agent may start before the old one has ended.
	PodUID   types.UID
	Client   kubernetes.Interface
	Claims   Claims
	Health   *Health
	Observer Observer
	Log      logr.Logger
}

// Server is the driver as kubelet sees it.
type Server struct {
	helper   *kubeletplugin.Helper
	nodeName string
}

// grpcLogLevel keeps requests and responses out of the log unless asked for.
const grpcLogLevel = 6

// Start serves kubelet until the context ends or Stop is called. It publishes nothing by itself.
func Start(ctx context.Context, o Options) (*Server, error) {
	data := filepath.Join(o.PluginsDir, v1alpha1.DriverName)
	for _, dir := range []string{data, o.RegistrarDir} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, fmt.Errorf("making kubelet's directory: %w", err)
		}
	}
	ctx = klog.NewContext(ctx, o.Log)
	helper, err := kubeletplugin.Start(ctx, &plugin{claims: o.Claims, health: o.Health, observer: o.Observer, log: o.Log},
		kubeletplugin.DriverName(v1alpha1.DriverName),
		kubeletplugin.NodeName(o.NodeName),
		kubeletplugin.KubeClient(o.Client),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(o.RegistrarDir),
		kubeletplugin.FlockDirectoryPath(o.StateDir),
		kubeletplugin.RollingUpdate(o.PodUID),
		kubeletplugin.GRPCVerbosity(grpcLogLevel),
		kubeletplugin.GRPCInterceptor(noteRegistration(o.Observer)),
	)
	if err != nil {
		return nil, fmt.Errorf("starting the DRA driver: %w", err)
	}
	return &Server{helper: helper, nodeName: o.NodeName}, nil
}

// noteRegistration tells the observer when kubelet says that it registered the driver.
func noteRegistration(observer Observer) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		answer, err := handler(ctx, req)
		if status, ok := req.(*registerapi.RegistrationStatus); ok && status.GetPluginRegistered() {
			observer.Registered()
		}
		return answer, err
	}
}

// Publish makes the slices the node's only ones of this driver. It returns before they are written. The first call waits
// until the node's slices can be read.
func (s *Server) Publish(ctx context.Context, slices []resourceslice.Slice) error {
	resources := resourceslice.DriverResources{}
	// A pool without slices is named all the same, so that the slices of a node that offers nothing any more go away.
	resources.Pools = map[string]resourceslice.Pool{s.nodeName: {Slices: slices}}
	if err := s.helper.PublishResources(ctx, resources); err != nil {
		return fmt.Errorf("publishing the ResourceSlices: %w", err)
	}
	return nil
}

// Stop ends serving and publishing and waits for both.
func (s *Server) Stop() { s.helper.Stop() }
