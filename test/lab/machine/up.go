// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gpu/sluice/test/lab/certs"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/process"
)

const tailLines = 25

// Up starts a machine and returns its state once its node is ready. A start that fails removes what it made; the error holds
// the logs' ends.
func Up(ctx context.Context, lab cluster.Dir, spec Spec, images []string) (*State, error) {
	labState, err := lab.Load()
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a machine needs root: it makes namespaces, mounts and containers")
	}
	if _, err := os.Stat(lab.EgressConfig()); err != nil {
		return nil, fmt.Errorf("the lab was not brought up for machines (lab up --machines): %w", err)
	}
	state, err := reserve(lab, spec)
	if err != nil {
		return nil, err
	}
	client, err := labState.Admin()
	if err != nil {
		return nil, err
	}
	err = state.make(ctx, lab)
	if err == nil {
		err = state.start(ctx, lab, client, append([]string{state.Dir.pause()}, images...))
	}
	if err != nil {
		undo := context.WithoutCancel(ctx)
		return nil, errors.Join(err, remove(undo, client, state, true))
	}
	return state, nil
}

// reserve makes the machine's directory and gives it a number that no other has.
func reserve(lab cluster.Dir, spec Spec) (*State, error) {
	unlock, err := cluster.Lock(string(lab))
	if err != nil {
		return nil, err
	}
	defer unlock()
	list, err := List(lab)
	if err != nil {
		return nil, err
	}
	if spec.Number, err = freeNumber(list); err != nil {
		return nil, err
	}
	if spec.NodeIP == "" {
		spec.NodeIP = fmt.Sprintf(nodeAddress, spec.Number)
	}
	if _, err := netip.ParseAddr(spec.NodeIP); err != nil {
		return nil, fmt.Errorf("reading the node's address: %w", err)
	}
	state := &State{Spec: spec, Dir: dirOf(lab, spec.Name)}
	if err := os.MkdirAll(machines(lab), 0o755); err != nil {
		return nil, fmt.Errorf("making the machines' directory: %w", err)
	}
	if err := os.Mkdir(string(state.Dir), 0o755); errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("the lab already has a machine %s: take it down first", spec.Name)
	} else if err != nil {
		return nil, fmt.Errorf("making the machine's directory: %w", err)
	}
	return state, state.save()
}

// make makes what a machine has before anything runs.
func (s *State) make(ctx context.Context, lab cluster.Dir) error {
	if err := s.Spec.GPUs.Make(ctx, s.Dir.GPUState(), s.Dir.DriverRoot()); err != nil {
		return fmt.Errorf("making the fake GPUs: %w", err)
	}
	if err := writeConfigs(ctx, s, filepath.Join(lab.Certs(), "ca.crt")); err != nil {
		return err
	}
	pair, err := certs.Read(lab.Certs(), "ca")
	if err != nil {
		return fmt.Errorf("reading the lab's authority: %w", err)
	}
	authority, err := certs.Load(pair, time.Now())
	if err != nil {
		return fmt.Errorf("reading the lab's authority: %w", err)
	}
	user := "system:node:" + s.Spec.Name
	identity, err := authority.Client(user, "system:nodes")
	if err != nil {
		return fmt.Errorf("making the kubelet's certificate: %w", err)
	}
	return certs.WriteKubeconfig(s.Dir.kubeconfig(), "https://"+serviceAddress, pair.Cert, certs.User{Name: user, Pair: identity})
}

// start boots the machine and waits until its node is ready.
func (s *State) start(ctx context.Context, lab cluster.Dir, client kubernetes.Interface, images []string) error {
	if err := writeBootID(s.Dir.bootID()); err != nil {
		return err
	}
	p, err := process.Start(process.Spec{
		Path: "/proc/self/exe", Args: []string{"machine", "init", "--dir", string(lab), "--name", s.Spec.Name},
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}, Log: filepath.Join(s.Dir.Logs(), "machine.log"), Sys: namespaces(s.Spec),
	})
	if err != nil {
		return fmt.Errorf("starting the machine: %w", err)
	}
	s.Init = &p.Identity
	if err := s.save(); err != nil {
		return err
	}
	for _, image := range images {
		if err := s.awaitRuntime(ctx); err != nil {
			return err
		}
		if err := Import(ctx, s, image); err != nil {
			return err
		}
	}
	return s.awaitNode(ctx, client)
}

// awaitRuntime waits until containerd listens.
func (s *State) awaitRuntime(ctx context.Context) error {
	return s.await(ctx, func() (string, error) {
		if _, err := os.Stat(s.inside(containerdSocket)); err != nil {
			return "containerd does not listen", nil //nolint:nilerr // it is looked for again
		}
		return "", nil
	})
}

// inside is where the host sees a path of the machine's.
func (s *State) inside(path string) string {
	return filepath.Join("/proc", fmt.Sprint(s.Init.PID), "root", path)
}

// awaitNode waits until the node of this boot is ready, and gives it its labels as soon as it is there.
func (s *State) awaitNode(ctx context.Context, client kubernetes.Interface) error {
	labelled := len(s.Spec.Labels) == 0
	return s.await(ctx, func() (string, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, s.Spec.Name, metav1.GetOptions{})
		if err != nil {
			return "the node has not registered: " + err.Error(), nil //nolint:nilerr // it is looked for again
		}
		boot, err := os.ReadFile(s.Dir.bootID())
		if err != nil {
			return "the machine has not booted", nil //nolint:nilerr // it is looked at again
		}
		if node.Status.NodeInfo.BootID != strings.TrimSpace(string(boot)) {
			return "the node has not registered since the boot", nil
		}
		if !labelled {
			if err := s.label(ctx, client); err != nil {
				return "", err
			}
			labelled = true
		}
		return notReady(node), nil
	})
}

func notReady(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return ""
		} else if c.Type == corev1.NodeReady {
			return "the node is not ready: " + c.Message
		}
	}
	return "the node has not said whether it is ready"
}

// label gives the Node labels as its administrator, since some are not a node's to give to itself.
func (s *State) label(ctx context.Context, client kubernetes.Interface) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": s.Spec.Labels}})
	if err != nil {
		return fmt.Errorf("encoding the node's labels: %w", err)
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, s.Spec.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("labelling the node: %w", err)
	}
	return nil
}

// await calls look until it names nothing that is missing.
func (s *State) await(ctx context.Context, look func() (string, error)) error {
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		missing, err := look()
		if err != nil {
			return err
		}
		if missing == "" {
			return nil
		}
		if !s.Init.Alive() {
			return fmt.Errorf("the machine ended (%s); the ends of its logs:\n%s", missing, s.tails())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s; the ends of its logs:\n%s", missing, s.tails())
		case <-retry.C:
		}
	}
}

func (s *State) tails() string {
	var text strings.Builder
	for _, name := range []string{"machine", Containerd, Kubelet} {
		path := filepath.Join(s.Dir.Logs(), name+".log")
		if _, err := os.Stat(path); err == nil {
			fmt.Fprintf(&text, "--- %s\n%s\n", path, process.Tail(path, tailLines))
		}
	}
	return text.String()
}

// remove ends a machine and removes what is its own.
func remove(ctx context.Context, client kubernetes.Interface, s *State, object bool) error {
	if err := s.stop(); err != nil {
		return err
	}
	if object {
		err := client.CoreV1().Nodes().Delete(ctx, s.Spec.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the node: %w", err)
		}
	}
	if err := os.RemoveAll(string(s.Dir)); err != nil {
		return fmt.Errorf("removing the machine's files: %w", err)
	}
	return nil
}

// stop ends all processes of the machine at once. Containers get no time: what they hold is the machine's, and goes with it.
func (s *State) stop() error {
	if s.Init == nil {
		return nil
	}
	if err := s.Init.Kill(); err != nil {
		return fmt.Errorf("cutting the machine off: %w", err)
	}
	return clearCgroups(cgroupRoot, s.cgroup(), time.Minute)
}
