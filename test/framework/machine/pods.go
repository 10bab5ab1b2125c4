// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// Await waits until a pod is as it should be, and returns it; the error of a pod that does not become so tells its state.
func (l *Lab) Await(ctx context.Context, pod *corev1.Pod, what string, done func(*corev1.Pod) bool) (*corev1.Pod, error) {
	got := &corev1.Pod{}
	err := stack.Poll(ctx, fmt.Sprintf("the pod %s %s", pod.Name, what), func(ctx context.Context) (bool, error) {
		if err := l.Client.Get(ctx, client.ObjectKeyFromObject(pod), got); err != nil {
			return false, nil //nolint:nilerr // a pod, or an API server, may be away for a while
		}
		return done(got), nil
	})
	if err != nil {
		described, _ := l.Kubectl(context.WithoutCancel(ctx), "describe", "pod", pod.Name, "--namespace", pod.Namespace)
		return got, fmt.Errorf("%w\n%s", err, described)
	}
	return got, nil
}

// Running says whether all containers of a pod run.
func Running(p *corev1.Pod) bool {
	return len(p.Status.ContainerStatuses) == len(p.Spec.Containers) &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running == nil })
}

// Exec runs a command in a container and returns its standard output.
func (l *Lab) Exec(ctx context.Context, pod *corev1.Pod, container string, command ...string) (string, error) {
	args := append([]string{"exec", "--namespace", pod.Namespace, pod.Name, "--container", container, "--"}, command...)
	return l.Kubectl(ctx, args...)
}

// Log reads what a container wrote, of its start number restart, from the files on its machine. It takes no API server.
func (l *Lab) Log(pod *corev1.Pod, container string, restart int) (string, error) {
	dir := fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID)
	path := filepath.Join(l.Dir, "machines", pod.Spec.NodeName, "log", "pods", dir, container, fmt.Sprintf("%d.log", restart))
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the log of %s: %w", pod.Name, err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(content)) {
		// The time, the stream, whether the line is whole, and the line.
		if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
			text.WriteString(fields[3])
		}
	}
	return text.String(), nil
}

// Agent is the node agent's pod on a machine.
func (l *Lab) Agent(ctx context.Context, machine string) (*corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := l.Client.List(ctx, pods, client.InNamespace(stack.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "node-agent"})
	if err != nil {
		return nil, fmt.Errorf("looking for the agent of %s: %w", machine, err)
	}
	for i, pod := range pods.Items {
		if pod.Spec.NodeName == machine && pod.DeletionTimestamp == nil {
			return &pods.Items[i], nil
		}
	}
	return nil, fmt.Errorf("the machine %s has no agent", machine)
}

// KillAgent ends the node agent of a machine as a crash would; kubelet starts it again.
func (l *Lab) KillAgent(ctx context.Context, machine string) error {
	pids, err := l.On(ctx, machine, "pidof", "node-agent")
	if err != nil {
		return err
	}
	_, err = l.On(ctx, machine, append([]string{"kill", "-KILL"}, strings.Fields(pids)...)...)
	return err
}
