// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// asking is a template of pods that each ask for a whole GPU of a pool.
func asking(pool string) corev1.PodTemplateSpec {
	p := builders.MakePod("").Pool(pool).Limit(v1alpha1.ResourceGPU, "1").Obj()
	p.Labels["app"] = pool
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
}

// TestWorkloadsHaveGPUsOfTheirOwn runs a Deployment, a pod with two claims and a Job on the same two GPUs, one after another.
func TestWorkloadsHaveGPUsOfTheirOwn(t *testing.T) {
	s := newScene(t)
	const name = "workloads"
	s.node(stack.Node{Name: name, Pool: name, Board: "h100-80gb", GPUs: 2})
	s.pool(builders.MakePool(name).Mode(v1alpha1.SharingExclusive).Obj())

	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: asking(name),
		},
	}
	s.create(deployment)
	s.wait("both replicas run", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
		return deployment.Status.ReadyReplicas == 2, err
	})
	s.apart(name)
	if err := cluster.Client.Delete(t.Context(), deployment, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	s.unused(name)

	s.create(whole(s.namespace, "one", name))
	s.create(whole(s.namespace, "other", name))
	pod := builders.MakePod("both").Claim("one").Obj()
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "other", ResourceClaimTemplateName: ptr.To("other")})
	pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: "other"})
	s.running(s.pod(pod))
	s.apart(name)
	s.remove(pod)

	template := asking(name)
	template.Annotations = map[string]string{"lab.sluice.dev/exit-after": "500ms"}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       batchv1.JobSpec{Completions: ptr.To[int32](5), Parallelism: ptr.To[int32](3), Template: template},
	}
	s.create(job)
	s.wait("the job is done", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(job), job)
		return job.Status.Succeeded == 5, err
	})
	s.unused(name)
}

// apart checks that two devices of a node are held, each once.
func (s scene) apart(node string) {
	s.Helper()
	results, err := holdings(s.Context(), node)
	if err != nil {
		s.Fatal(err)
	}
	if len(results) != 2 || results[0] == results[1] {
		s.Errorf("of two GPUs are held %v", results)
	}
}

// TestPodsThatComeAndGoLeaveNothing deletes pods at every moment of their start.
func TestPodsThatComeAndGoLeaveNothing(t *testing.T) {
	const workers, pods = 6, 8
	s := newScene(t)
	s.node(stack.Node{Name: "rapid", Pool: "rapid", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("rapid").MIG().Obj())
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := range pods {
				p := builders.MakePod(fmt.Sprintf("p%d-%d", worker, i)).Namespace(s.namespace).Pool("rapid").Memory("9Gi").Obj()
				if err := cluster.Client.Create(t.Context(), p); err != nil {
					t.Error(err)
					return
				}
				s.reaches(p, i%4)
				if err := cluster.Client.Delete(t.Context(), p); client.IgnoreNotFound(err) != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.unused("rapid")
	s.migMode("rapid", v1alpha1.MIGDisabled)
	s.wait("no claim is left", func(ctx context.Context) (bool, error) {
		held, err := allocated(ctx, "rapid")
		return len(held) == 0, err
	})
	s.running(s.pod(builders.MakePod("large").Pool("rapid").Memory("70Gi").Obj()))
}

// reaches waits until a pod has come so far: it is there, has a node, has its claim reserved, or runs.
func (s scene) reaches(p *corev1.Pod, far int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	err := stack.Poll(ctx, fmt.Sprintf("pod %s has come as far as %d", p.Name, far), func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return far == 0 || far == 1 && len(p.Status.ResourceClaimStatuses) > 0 || far == 2 && p.Spec.NodeName != "" ||
			p.Status.Phase == corev1.PodRunning, err
	})
	if err != nil {
		s.Error(err)
	}
}

func TestMetricsAreExposed(t *testing.T) {
	s := newScene(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s.node(stack.Node{Name: "metrics", Pool: "metrics", Board: "h100-80gb", GPUs: 1, AgentArgs: []string{"--metrics-address=" + address}})
	s.pool(builders.MakePool("metrics").Obj())
	s.running(s.pod(builders.MakePod("tenant").Pool("metrics").Memory("4Gi").Obj()))
	s.wait("the manager counts the pool's GPU", func(ctx context.Context) (bool, error) {
		value, _ := cluster.Metric(ctx, 0, `sluice_pool_gpus{pool="metrics",state="allocated"}`)
		return value == "1", nil
	})
	s.wait("the agent tells of its GPU", func(ctx context.Context) (bool, error) {
		text, err := fetch(ctx, "http://"+address+"/metrics")
		return contains(text, `sluice_agent_gpu_health{`, `pool="metrics",state="committed"`, `namespace="`+s.namespace+`"`), err
	})
}

// fetch reads a page.
func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("asking for %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", url, err)
	}
	defer func() { _ = response.Body.Close() }()
	var text strings.Builder
	if _, err := io.Copy(&text, response.Body); err != nil {
		return "", fmt.Errorf("reading %s: %w", url, err)
	}
	return text.String(), nil
}
