// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/test/framework/tenants"
)

// What tests of this package say of tenants, all on the lab that they share.

const (
	busyboxImage = tenants.BusyboxImage
	cudaImage    = tenants.CUDAImage
	patience     = tenants.Patience
	gibi         = tenants.Gibi
	chunk        = tenants.Chunk
	outOfMemory  = tenants.OutOfMemory
)

type outcome = tenants.Outcome

func pod(name string) *corev1.Pod { return tenants.Pod(name, large, "2Gi") }

func with(p *corev1.Pod, name, memory string) *corev1.Pod { return tenants.With(p, name, memory) }

func holding(name, claim string) *corev1.Pod { return tenants.Holding(name, claim) }

func fits(limit uint64, others, chunks int) outcome { return tenants.Fits(limit, others, chunks) }

func run(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	return tenants.Run(t, lab, p)
}

func again(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	return tenants.Again(t, lab, p)
}

func take(t *testing.T, p *corev1.Pod, container string, command ...string) outcome {
	t.Helper()
	return tenants.Take(t, lab, p, container, command...)
}

func hold(t *testing.T, p *corev1.Pod, chunks int) {
	t.Helper()
	tenants.Hold(t, lab, p, chunks)
}

func logged(t *testing.T, p *corev1.Pod, restart int) outcome {
	t.Helper()
	return tenants.Logged(t, lab, p, restart)
}

func claim(t *testing.T, name, pool, memory string) {
	t.Helper()
	tenants.Claim(t, lab, name, pool, memory)
}
