// SPDX-License-Identifier: Apache-2.0

// Command node-agent is Sluice's part on each GPU node: the DRA driver that offers the node's GPUs to the scheduler and
// prepares what claims were granted.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gpu/sluice/node-agent/agent"
)

// flags are what the command line says, beyond what goes into the agent's configuration as it is.
type flags struct {
	kubeconfig, podUID, shareSize string
	bootIDFile                    string
	healthAddress, metricsAddress string
	resync                        time.Duration
	verbosity                     int
	agent                         agent.Config
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "node-agent:", err)
		os.Exit(1)
	}
}

func run() error {
	f := parse()
	log, err := newLogger(f.verbosity)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, registry, err := configure(f, log)
	if err != nil {
		return err
	}
	if err := serve(ctx, f.healthAddress, healthMux(config.Ready), log); err != nil {
		return err
	}
	metrics := http.NewServeMux()
	metrics.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	if err := serve(ctx, f.metricsAddress, metrics, log); err != nil {
		return err
	}
	for {
		err := agent.Run(ctx, config)
		if errors.Is(err, agent.ErrLeft) {
			err = agent.Leave(ctx, config)
			if config.ShareBytes > 0 {
				return err // the container's volumes are not the node's directories any more; a new one has them again
			}
		}
		if !errors.Is(err, agent.ErrNodeReplaced) {
			return err
		}
		log.Info("Starting over", "reason", err.Error())
	}
}

func parse() *flags {
	f := &flags{}
	set := pflag.CommandLine
	set.StringVar(&f.agent.NodeName, "node-name", os.Getenv("NODE_NAME"), "Name of this node. Default: $NODE_NAME.")
	set.StringVar(&f.podUID, "pod-uid", os.Getenv("POD_UID"), "UID of the agent's pod; lets a new agent start before the old one has ended. Default: $POD_UID.")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "Kubeconfig of the API server. Default: the pod's service account.")
	set.StringVar(&f.agent.HostRoot, "host-root", "/", "Directory in which the agent sees the node's root directory.")
	set.StringVar(&f.agent.DriverRoot, "driver-root", "/", "Directory of the node in which NVIDIA's driver is installed.")
	set.StringVar(&f.agent.DevRoot, "dev-root", "", "Directory of the node that holds dev/nvidia*. Default: the driver root.")
	set.StringVar(&f.agent.ProcDir, "proc-dir", "/proc", "The node's procfs, from which processes that hold GPUs get their names.")
	set.StringVar(&f.agent.MPSDir, "mps-dir", "/run/sluice-mps", "Directory of what MPS daemons and their clients need; on a tmpfs other than /dev/shm, with the same path on the node.")
	set.StringVar(&f.agent.MPSCgroup, "mps-cgroup", "/sys/fs/cgroup/sluice-mps", "Directory of the node's cgroup v2 file system in which MPS daemons get cgroups of their own, so that they outlive the agent; empty: they stay in the agent's.")
	set.StringVar(&f.agent.MPSNamespace, "mps-namespace", "/proc/1/ns/mnt", "Mount namespace in which MPS daemons are started, the node's; empty: the agent's.")
	set.StringVar(&f.agent.StateDir, "state-dir", "/var/lib/sluice", "Directory of the checkpoint; it must survive a restart of the node.")
	set.StringVar(&f.agent.ShareDir, "share-dir", "/run/sluice", "Directory of the shares; a tmpfs.")
	set.StringVar(&f.shareSize, "share-size", "0", "Size of the tmpfs that the agent mounts at --share-dir, such as 256Mi, where there is none; 0: --share-dir is on one.")
	set.StringVar(&f.agent.LibraryPath, "library", "/usr/lib/sluice/libsluice.so", "Library that holds shares inside their processes; empty: shares are only counted.")
	set.StringVar(&f.agent.CDIDir, "cdi-dir", "/var/run/cdi", "Directory of CDI specs that the container runtime reads.")
	set.StringVar(&f.agent.CDIHookPath, "cdi-hook-path", "", "nvidia-cdi-hook as the container runtime sees it. Default: a copy of --cdi-hook that the agent places on the node.")
	set.StringVar(&f.agent.CDIHook, "cdi-hook", "/usr/bin/nvidia-cdi-hook", "nvidia-cdi-hook as it is installed with the agent.")
	set.StringVar(&f.agent.HostBinDir, "host-bin-dir", "/var/lib/sluice/bin", "Directory of programs that the container runtime runs, with the same path on the node; the file system must allow to run them.")
	set.StringVar(&f.agent.StartHookPath, "sluice-hook-path", "", "sluice-cdi-hook as the container runtime sees it. Default: a copy of --sluice-hook that the agent places on the node.")
	set.StringVar(&f.agent.StartHook, "sluice-hook", "/usr/bin/sluice-cdi-hook", "sluice-cdi-hook as it is installed with the agent.")
	set.StringVar(&f.agent.CgroupDir, "cgroup-dir", "/sys/fs/cgroup", "The node's cgroup v2 file system, in which the driver limits the memory of containers.")
	set.StringVar(&f.agent.PluginsDir, "plugin-dir", "/var/lib/kubelet/plugins", "kubelet's directory of plugins.")
	set.StringVar(&f.agent.RegistrarDir, "registrar-dir", "/var/lib/kubelet/plugins_registry", "Directory in which kubelet looks for plugins to register.")
	set.StringVar(&f.bootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id", "File that is different after each boot of the node.")
	set.DurationVar(&f.resync, "resync", 30*time.Second, "Longest time between two looks at everything.")
	set.StringVar(&f.healthAddress, "health-address", "", "Address of /healthz and /readyz, such as :8081; empty for none.")
	set.StringVar(&f.metricsAddress, "metrics-address", "", "Address of /metrics, such as :8080; empty for none.")
	set.IntVarP(&f.verbosity, "v", "v", 0, "Log verbosity, 0 to 10.")
	pflag.Parse()
	return f
}

func configure(f *flags, log logr.Logger) (agent.Config, *prometheus.Registry, error) {
	c := f.agent
	if c.NodeName == "" {
		return c, nil, errors.New("--node-name must be set")
	}
	if c.DevRoot == "" {
		c.DevRoot = c.DriverRoot
	}
	size, err := resource.ParseQuantity(f.shareSize)
	if err != nil {
		return c, nil, fmt.Errorf("reading --share-size: %w", err)
	}
	if size.Sign() < 0 {
		return c, nil, fmt.Errorf("--share-size is negative: %s", f.shareSize)
	}
	c.ShareBytes = size.Value()
	bootID, err := os.ReadFile(f.bootIDFile)
	if err != nil {
		return c, nil, fmt.Errorf("reading the boot ID: %w", err)
	}
	c.BootID = strings.TrimSpace(string(bootID))
	c.PodUID = types.UID(f.podUID)
	// An empty path means the service account of the pod.
	if c.REST, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig); err != nil {
		return c, nil, fmt.Errorf("finding the API server: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if c.Metrics, err = agent.NewMetrics(registry); err != nil {
		return c, nil, fmt.Errorf("making the metrics: %w", err)
	}
	c.Intervals, c.Clock, c.Log, c.Ready = agent.DefaultIntervals(f.resync), clock.RealClock{}, log, &atomic.Bool{}
	return c, registry, nil
}

// newLogger logs JSON lines to standard error, for this program and for the Kubernetes libraries in it.
func newLogger(verbosity int) (logr.Logger, error) {
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(zapcore.Level(-verbosity))
	config.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	config.DisableStacktrace = true
	config.Sampling = nil
	z, err := config.Build()
	if err != nil {
		return logr.Logger{}, fmt.Errorf("making the logger: %w", err)
	}
	log := zapr.NewLogger(z)
	klog.SetLogger(log)
	ctrllog.SetLogger(log)
	return log, nil
}
