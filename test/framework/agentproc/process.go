// SPDX-License-Identifier: Apache-2.0

package agentproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// startTime is how long an agent may take to serve.
const startTime = 30 * time.Second

// Agent is a running agent.
type Agent struct {
	cmd    *exec.Cmd
	log    *logBuffer
	report string
	client dra.DRAPluginClient
	conn   *grpc.ClientConn
	ended  chan struct{}
}

// Start starts an agent and waits until it serves.
func (r *Rig) Start(tb testing.TB) *Agent {
	tb.Helper()
	return r.start(tb, r.binaries.Agent, r.flags()...)
}

// StartToWait starts an agent that has to wait for another, and waits until it says so.
func (r *Rig) StartToWait(tb testing.TB) *Agent {
	tb.Helper()
	a := r.launch(tb, r.binaries.Agent, r.flags()...)
	deadline := time.NewTimer(startTime)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(a.log.String(), "Waiting for the node's active agent to end") {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("the agent does not wait:\n%s", a.log)
		}
	}
	return a
}

// Serves says whether an agent without a pod serves.
func (r *Rig) Serves() bool {
	_, err := os.Stat(r.socket())
	return err == nil
}

// Served waits until the agent, which had to wait, serves.
func (r *Rig) Served(tb testing.TB, a *Agent) {
	tb.Helper()
	if err := a.connect(r.socket()); err != nil {
		tb.Fatalf("the agent does not serve: %v\n%s", err, a.log)
	}
}

// StartAs starts an agent as a pod, beside others.
func (r *Rig) StartAs(tb testing.TB, podUID string) *Agent {
	tb.Helper()
	a := r.launch(tb, r.binaries.Agent, append(r.flags(), "--pod-uid="+podUID)...)
	if err := a.connect(filepath.Join(filepath.Dir(r.socket()), "dra-"+podUID+".sock")); err != nil {
		a.Kill()
		tb.Fatalf("the agent does not serve: %v\n%s", err, a.log)
	}
	return a
}

// StartToBeKilled starts an agent that is killed at the Nth call that changes a file of the node, counted from Arm on; at
// 0 it only counts.
func (r *Rig) StartToBeKilled(tb testing.TB, n int) *Agent {
	tb.Helper()
	a := r.start(tb, r.binaries.KillAt, r.killArgs(n)...)
	a.report = r.path("killat")
	return a
}

func (r *Rig) killArgs(n int) []string {
	args := []string{"--at", strconv.Itoa(n), "--report", r.path("killat")}
	under := []string{r.path("state"), r.path("shares"), r.path("cdi"), r.path("mps")}
	if !r.LeaveHardware {
		under = append(under, r.Node.State)
	}
	for _, dir := range under {
		args = append(args, "--under", dir)
	}
	return append(append(args, "--", r.binaries.Agent), r.flags()...)
}

func (r *Rig) socket() string { return filepath.Join(r.path("p"), v1alpha1.DriverName, "dra.sock") }

func (r *Rig) flags() []string {
	return append([]string{
		"--node-name=" + NodeName, "--kubeconfig=" + r.path("kubeconfig"),
		"--driver-root=" + r.Node.Root, "--state-dir=" + r.path("state"), "--share-dir=" + r.path("shares"),
		"--cdi-dir=" + r.path("cdi"), "--plugin-dir=" + r.path("p"), "--registrar-dir=" + r.path("r"),
		"--mps-dir=" + r.path("mps"), "--mps-cgroup=", "--mps-namespace=",
		"--library=" + r.Library, "--cdi-hook-path=/usr/bin/nvidia-cdi-hook", "--boot-id-file=" + r.bootIDFile(),
		"--cgroup-dir=" + r.path("no-cgroups"), "--sluice-hook-path=" + r.binaries.StartHook,
	}, r.Flags...)
}

// bootIDFile is the machine's, unless Reboot has been called.
func (r *Rig) bootIDFile() string {
	if _, err := os.Stat(r.path("boot_id")); err == nil {
		return r.path("boot_id")
	}
	return "/proc/sys/kernel/random/boot_id"
}

// Reboot makes the next agent believe that the node was booted again.
func (r *Rig) Reboot(tb testing.TB) {
	tb.Helper()
	if err := os.WriteFile(r.path("boot_id"), []byte(strconv.FormatInt(time.Now().UnixNano(), 10)), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// start starts an agent and waits until it serves.
func (r *Rig) start(tb testing.TB, program string, args ...string) *Agent {
	tb.Helper()
	a := r.launch(tb, program, args...)
	if err := a.connect(r.socket()); err != nil {
		a.Kill()
		tb.Fatalf("the agent does not serve: %v\n%s", err, a.log)
	}
	return a
}

func (r *Rig) launch(tb testing.TB, program string, args ...string) *Agent {
	tb.Helper()
	a := &Agent{log: &logBuffer{}, ended: make(chan struct{})}
	a.cmd = exec.Command(program, args...) //nolint:noctx // the test ends it
	a.cmd.Env = append(os.Environ(), r.Node.Environment()...)
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	// What a killed agent left is not mistaken for the new one's.
	_ = os.Remove(r.socket())
	if err := a.cmd.Start(); err != nil {
		tb.Fatalf("starting the agent: %v", err)
	}
	go func() {
		defer close(a.ended)
		_ = a.cmd.Wait()
	}()
	tb.Cleanup(func() {
		a.Kill()
		if tb.Failed() {
			tb.Logf("log of an agent:\n%s", a.log)
		}
	})
	return a
}

// connect waits until the agent answers.
func (a *Agent) connect(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	// An agent that ends between opening its socket and its answer is waited for no longer.
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-a.ended:
			cancel()
		case <-stop:
		}
	}()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	a.conn, a.client = conn, dra.NewDRAPluginClient(conn)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(socket); err == nil {
			if _, err := a.client.NodeUnprepareResources(ctx, &dra.NodeUnprepareResourcesRequest{}, grpc.WaitForReady(true)); err == nil {
				return nil
			}
		}
		select {
		case <-a.ended:
			return errors.New("it has ended")
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", socket, ctx.Err())
		case <-tick.C:
		}
	}
}

// Arm starts the counting of calls.
func (a *Agent) Arm(tb testing.TB) {
	tb.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		tb.Fatalf("arming killat: %v", err)
	}
}

// Prepare asks for one claim as kubelet does and returns its devices.
func (a *Agent) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]*dra.Device, error) {
	response, err := a.client.NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{Claims: []*dra.Claim{kubeletClaim(claim)}})
	if err != nil {
		return nil, fmt.Errorf("NodePrepareResources: %w", err)
	}
	answer := response.GetClaims()[string(claim.UID)]
	if answer.GetError() != "" {
		return nil, errors.New(answer.GetError())
	}
	return answer.GetDevices(), nil
}

// Unprepare releases one claim as kubelet does.
func (a *Agent) Unprepare(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	response, err := a.client.NodeUnprepareResources(ctx, &dra.NodeUnprepareResourcesRequest{Claims: []*dra.Claim{kubeletClaim(claim)}})
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	if text := response.GetClaims()[string(claim.UID)].GetError(); text != "" {
		return errors.New(text)
	}
	return nil
}

func kubeletClaim(claim *resourceapi.ResourceClaim) *dra.Claim {
	return &dra.Claim{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}
}

// Log is what the agent has said so far.
func (a *Agent) Log() string { return a.log.String() }

// Kill ends the agent as a crash does and waits until it is gone.
func (a *Agent) Kill() {
	if a.conn != nil {
		_ = a.conn.Close()
	}
	_ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
	<-a.ended
}

// Stop asks the agent to end and returns its exit status.
func (a *Agent) Stop() int {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	<-a.ended
	return a.cmd.ProcessState.ExitCode()
}

// Cut waits for the end of an agent that is to be killed, and says how many calls were counted and which one was not made
// any more; "-" where it was not killed by the count.
func (a *Agent) Cut(tb testing.TB) (counted int, call string) {
	tb.Helper()
	<-a.ended
	data, err := os.ReadFile(a.report)
	if err != nil {
		tb.Fatalf("reading killat's report: %v\n%s", err, a.log)
	}
	if _, err := fmt.Sscanf(string(data), "%d %s", &counted, &call); err != nil {
		tb.Fatalf("reading killat's report %q: %v", data, err)
	}
	return counted, call
}

// Finish ends an agent that was to be killed and was not, as a crash does, and returns the calls counted.
func (a *Agent) Finish(tb testing.TB) int {
	tb.Helper()
	// killat has a tracer, whose first child is the agent. It ends with the agent's end, which it then reports.
	agent := firstChild(tb, firstChild(tb, a.cmd.Process.Pid))
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		tb.Fatalf("ending the agent: %v", err)
	}
	counted, _ := a.Cut(tb)
	return counted
}

func firstChild(tb testing.TB, pid int) int {
	tb.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		tb.Fatalf("finding the agent below killat: %v", err)
	}
	child, err := strconv.Atoi(string(bytes.TrimSpace(bytes.SplitN(children, []byte(" "), 2)[0])))
	if err != nil {
		tb.Fatalf("finding the agent below killat in %q: %v", children, err)
	}
	return child
}

// RecoverToBeKilled starts an agent that is killed at the Nth call that changes a file of the node, counted from its very
// start, and waits until it is dead or serves; it says whether it came to serve. It is ended in either case.
func (r *Rig) RecoverToBeKilled(tb testing.TB, n int) (served bool) {
	tb.Helper()
	a := r.launch(tb, r.binaries.KillAt, append([]string{"--from-start", "1"}, r.killArgs(n)...)...)
	a.report = r.path("killat")
	if err := a.connect(r.socket()); err != nil {
		a.Cut(tb)
		return false
	}
	a.Finish(tb)
	return true
}

// Fails starts an agent that cannot start, and returns its exit status and what it says.
func (r *Rig) Fails(tb testing.TB) (status int, log string) {
	tb.Helper()
	a := r.launch(tb, r.binaries.Agent, r.flags()...)
	select {
	case <-a.ended:
		return a.cmd.ProcessState.ExitCode(), a.log.String()
	case <-time.After(startTime):
		tb.Fatal("the agent runs")
		return 0, ""
	}
}
