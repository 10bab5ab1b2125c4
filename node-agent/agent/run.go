// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	judged "github.com/sluice-gpu/sluice/internal/health"
	"github.com/sluice-gpu/sluice/node-agent/cdi"
	"github.com/sluice-gpu/sluice/node-agent/cgroups"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/claims"
	"github.com/sluice-gpu/sluice/node-agent/divide"
	"github.com/sluice-gpu/sluice/node-agent/dra"
	"github.com/sluice-gpu/sluice/node-agent/health"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/library"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/measure"
	"github.com/sluice-gpu/sluice/node-agent/mps"
	"github.com/sluice-gpu/sluice/node-agent/mps/watch"
	"github.com/sluice-gpu/sluice/node-agent/smi"
)

// Config is what an agent is started with.
type Config struct {
	NodeName string
	// BootID tells this boot of the node from every other.
	BootID string
	// PodUID is the agent's own pod's; "" where it does not run in one.
	PodUID types.UID
	// REST leads to the API server.
	REST *rest.Config

	// HostRoot is where the agent sees the node's root directory, below which it finds the driver.
	HostRoot string
	// DriverRoot is where NVIDIA's driver is installed on the node, DevRoot below which its device nodes are.
	DriverRoot, DevRoot string
	// StateDir holds the checkpoint, ShareDir the shares, CDIDir the CDI specs.
	StateDir, ShareDir, CDIDir string
	// ShareBytes is the size of the tmpfs that the agent mounts at ShareDir; 0: it is on one.
	ShareBytes int64
	// PluginsDir and RegistrarDir are kubelet's.
	PluginsDir, RegistrarDir string
	// LibraryPath is libsluice.so as it is installed with the agent; "" leaves shares without it.
	LibraryPath string
	// ProcDir is the node's procfs.
	ProcDir string
	// MPSDir holds what MPS daemons need, MPSCgroup the cgroups that they are started in, and MPSNamespace is a file of the
	// mount namespace that they are started in.
	MPSDir, MPSCgroup, MPSNamespace string
	// CDIHookPath is the nvidia-cdi-hook that the specs call, as the container runtime sees it; "": a copy of CDIHook, the one
	// installed with the agent, which is placed below HostBinDir. StartHookPath and StartHook are the same for
	// sluice-cdi-hook.
	CDIHookPath, CDIHook, StartHookPath, StartHook, HostBinDir string
	// CgroupDir is where the node's cgroup v2 file system is mounted.
	CgroupDir string

	Intervals Intervals
	Metrics   *Metrics
	Clock     clock.WithTicker
	Log       logr.Logger
	// Ready is set while kubelet is served.
	Ready *atomic.Bool
}

// clientRate bounds the requests of one node: slices come in bursts, a claim is read before it is prepared.
const (
	clientQPS   = 100
	clientBurst = 200
)

// Run is the agent's life. It returns nil where the context ended it.
func Run(ctx context.Context, c Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cluster, kube, err := clients(c)
	if err != nil {
		return err
	}
	driver := &Driver{Root: c.seen(c.DriverRoot)}
	defer driver.Close()
	doors, err := openDoors(c, driver)
	if err != nil {
		return err
	}
	defer doors.heartbeat.Close() //nolint:errcheck // the process ends
	preparer := newPreparer(c, doors, cluster, driver)
	resign, err := firstRole(ctx, c)
	if err != nil {
		return ended(ctx, err)
	}
	active := resign != nil
	if active {
		defer resign()
	}
	if err := recoverClaims(ctx, preparer, c.Log); err != nil {
		return err
	}
	agent := newAgent(c, doors, cluster, driver, preparer)
	back := &comeback{
		divider: agent.Divider, hardware: driver, preparer: preparer, foreign: agent.Repaired, log: c.Log.WithName("divide"),
	}
	if active {
		back.try(ctx)
	}
	watcher := newWatcher(c, doors, preparer, agent)
	beside := newBeside(c, doors, cluster, driver, agent, watcher)
	stopAnswering, err := answerStarts(ctx, c, doors)
	if err != nil {
		return err
	}
	defer stopAnswering()
	reports := &dra.Health{NodeName: c.NodeName, Clock: c.Clock}
	agent.HealthReports = reports
	server, err := dra.Start(ctx, dra.Options{
		NodeName: c.NodeName, PluginsDir: c.PluginsDir, RegistrarDir: c.RegistrarDir, StateDir: c.StateDir,
		PodUID: c.PodUID, Client: kube, Claims: preparer, Health: reports, Log: c.Log.WithName("dra"),
		Observer: &Observer{Agent: agent, Metrics: c.Metrics, Fatal: func(err error) { cancel(err) }},
	})
	if err != nil {
		return fmt.Errorf("serving kubelet: %w", err)
	}
	defer server.Stop()
	agent.Publisher = server
	c.Ready.Store(true)
	defer c.Ready.Store(false)
	if !active {
		resign, err := BecomeActive(ctx, c.StateDir, c.Clock, c.Log)
		if err != nil {
			return ended(ctx, err)
		}
		defer resign()
	}
	return ended(ctx, lead(ctx, cancel, c, agent, cluster, doors, beside, back))
}

// clients lead to the API server. It is not talked to yet, and may be away.
func clients(c Config) (*APICluster, kubernetes.Interface, error) {
	config := rest.CopyConfig(c.REST)
	config.QPS, config.Burst = clientQPS, clientBurst
	config.Wrap(c.Metrics.CountWrites)
	cluster, err := NewAPICluster(config, c.NodeName)
	if err != nil {
		return nil, nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making the client: %w", err)
	}
	return cluster, kube, nil
}

// firstRole takes the role of the active agent before kubelet is served, where that can be. Agents in pods of their own have
// sockets of their own and overlap: the later one serves, and has the role once the earlier one has ended. Without a pod there
// is one socket a node: the later agent would take it from the earlier one, so it waits.
func firstRole(ctx context.Context, c Config) (resign func(), err error) {
	if c.PodUID == "" {
		return BecomeActive(ctx, c.StateDir, c.Clock, c.Log)
	}
	return tryActive(c.StateDir)
}

// newAgent is the loop with all of its doors but that to kubelet.
func newAgent(c Config, doors doors, cluster *APICluster, driver *Driver, preparer Preparer) *Agent {
	finder := &holders.Finder{Hardware: driver, Proc: c.ProcDir}
	agent := &Agent{
		Hardware: driver, Cluster: cluster, Records: doors.records, Preparer: preparer, Library: doors.library,
		Divider: &divide.Divider{
			BootID: c.BootID, Records: doors.records, Hardware: driver, Holders: finder, Log: c.Log.WithName("divide"),
		},
		Holders: finder, MemoryLimits: doors.cgroups, TimeSlicer: &smi.Tool{DriverRoot: c.seen(c.DriverRoot)},
		Teller: cluster, Metrics: c.Metrics, Clock: c.Clock, Intervals: c.Intervals, Log: c.Log.WithName("loop"),
	}
	agent.Health = &health.Monitor{
		Hardware: driver, Counter: c.Metrics, Rules: judged.DefaultRules(), Times: health.DefaultTimes(),
		Clock: c.Clock, Log: c.Log.WithName("health"), Changed: agent.Trigger,
	}
	return agent
}

// lead runs the loop as the node's active agent.
func lead(
	ctx context.Context, cancel context.CancelCauseFunc, c Config, agent *Agent, cluster *APICluster, doors doors, others []besides,
	back *comeback,
) error {
	c.Log.Info("This is the node's active agent")
	sweepPrograms(c, doors)
	if err := doors.library.Lead(); err != nil {
		c.Log.Error(err, "Other agents of the node are not told which library this one places")
	}
	// Gates are shut before the lease begins, since who ran without one did as it liked, and are left without an arbiter only
	// once the heart beats no more.
	arbiter, err := arbitrate(c, doors, cancel)
	if err != nil {
		return err
	}
	defer arbiter.stop()
	agent.Arbiter = arbiter
	// They must have stopped before the heartbeat is closed and NVML ended.
	var beside sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	beside.Go(func() { beat(ctx, doors.heartbeat, c.Clock, c.Log) })
	beside.Go(func() { agent.Health.Run(ctx) })
	for _, other := range others {
		beside.Go(func() { other(ctx) })
	}
	defer beside.Wait()
	defer stop()
	away, there := context.WithCancel(ctx)
	defer there()
	beside.Go(func() { back.until(away, c.Clock, c.Intervals.DriverRetry) })
	if err := cluster.Watch(ctx, agent.Trigger); err != nil {
		return err
	}
	there()
	return agent.Run(ctx)
}

// ended is nil where the agent was asked to end, and what made it end otherwise.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, context.Canceled) {
			return nil
		}
		return fmt.Errorf("the agent cannot go on: %w", cause)
	}
	return err
}

// doors are those to the agent's own files.
type doors struct {
	records   *checkpoint.Store
	shares    *limits.Door
	heartbeat *limits.Heartbeat
	library   *library.Door
	mps       *mps.Door
	specs     *cdi.Door
	cgroups   *cgroups.Keeper
	// programs are those that the agent has placed on the node.
	programs []string
}

func openDoors(c Config, driver *Driver) (doors, error) {
	d := doors{library: library.New(c.ShareDir, c.LibraryPath), mps: daemons(c)}
	var err error
	if d.records, err = checkpoint.Open(c.StateDir); err != nil {
		return d, fmt.Errorf("opening the checkpoint: %w", err)
	}
	if err := checkDirs(c, d.records); err != nil {
		return d, err
	}
	if err := mountShares(c); err != nil {
		return d, err
	}
	hooks, err := programs(c)
	if err != nil {
		return d, err
	}
	d.programs = hooks.placed
	if d.specs, err = openSpecs(c, hooks, driver); err != nil {
		return d, err
	}
	if d.shares, err = limits.New(c.ShareDir); err != nil {
		return d, fmt.Errorf("opening the shares: %w", err)
	}
	if d.heartbeat, err = d.shares.Heartbeat(); err != nil {
		return d, fmt.Errorf("opening the shares: %w", err)
	}
	d.cgroups = cgroups.New(cgroups.Options{
		Root: c.CgroupDir, Proc: c.ProcDir, Hardware: driver, Records: d.records, Shares: d.shares, Clock: c.Clock, Log: c.Log.WithName("cgroups"),
	})
	return d, nil
}

func newPreparer(c Config, doors doors, cluster *APICluster, driver *Driver) *claims.Preparer {
	return &claims.Preparer{
		NodeName: c.NodeName, BootID: c.BootID, Records: doors.records, Hardware: driver,
		Specs: specs{doors.specs}, Shares: doors.shares, Library: doors.library, MPS: doors.mps, Limits: doors.cgroups, API: cluster,
		Contexts: measure.Figures{Records: doors.records, Log: c.Log.WithName("contexts")},
		Clock:    c.Clock, Log: c.Log.WithName("claims"),
	}
}

// newWatcher makes what looks after MPS, and has the agent report it.
func newWatcher(c Config, doors doors, preparer *claims.Preparer, agent *Agent) *watch.Watcher {
	w := &watch.Watcher{
		Records: doors.records, Daemons: doors.mps, Keeper: preparer, Holders: agent.Holders, Teller: agent.Teller, Gauges: c.Metrics,
		Changed: agent.Trigger, Log: c.Log.WithName("mps"),
	}
	agent.MPS = w
	return w
}

// recoveryTime bounds what the start waits for; the loop goes on with what is left.
const recoveryTime = 20 * time.Second

// recoverClaims ends the agent where the checkpoint cannot be read. Whatever else goes wrong, the node is served.
func recoverClaims(ctx context.Context, preparer *claims.Preparer, log logr.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, recoveryTime)
	defer cancel()
	err := preparer.Recover(ctx)
	if errors.Is(err, checkpoint.ErrUnreadable) {
		return fmt.Errorf("recovering the claims: %w", err)
	}
	if err != nil {
		log.Error(err, "Not everything that claims left could be taken back; it is tried again")
	}
	return nil
}
