// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/internal/shares"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	// Gibi is a GiB.
	Gibi = 1 << 30
	// Chunk is what a program takes at a time.
	Chunk = 64 << 20
	// OutOfMemory is CUDA's error of a program that is refused.
	OutOfMemory = 2
	// measuredContext is what a context costs on the fake GPU.
	measuredContext = 518 << 20
)

// Outcome is what a CUDA program tells of the memory that it could take.
type Outcome struct {
	Chunks int
	Error  int
	Failed string
	Total  uint64
}

// Fits is the outcome of a program in a share of so much, beside so many others with a context each and so many chunks in all.
func Fits(limit uint64, others, chunks int) Outcome {
	left := limit - uint64(1+others)*shares.ContextBytes - uint64(chunks)*Chunk
	return Outcome{Chunks: int(left / Chunk), Error: OutOfMemory, Total: limit}
}

// Within says why an outcome is not that of a program in a share of so much, beside so many others with a context each and so
// many chunks in all, or "" where it is. Unlike Fits it knows that the agent measures what a context costs as time passes, and
// charges new shares less from then on: never less than it does cost.
func Within(got Outcome, limit uint64, others, chunks int) string {
	want := Fits(limit, others, chunks)
	most := want
	most.Chunks = int((limit - uint64(1+others)*measuredContext - uint64(chunks)*Chunk) / Chunk)
	if got.Chunks > want.Chunks && got.Chunks <= most.Chunks {
		want.Chunks = got.Chunks
	}
	if got == want {
		return ""
	}
	return fmt.Sprintf("a program took %+v, want %+v, or up to %d chunks", got, want, most.Chunks)
}

// Decode reads the line that a CUDA program prints.
func Decode(line string) (Outcome, error) {
	var got Outcome
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		return got, fmt.Errorf("reading %q: %w", line, err)
	}
	return got, nil
}

// Take runs a CUDA program in a container, by a command of which the program is the last word, and returns what it could take
// before it was refused.
func Take(t *testing.T, lab *machine.Lab, p *corev1.Pod, container string, command ...string) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	var got Outcome
	var last error
	// Right after its start kubelet does not know its pods yet: a command that did not run is repeated.
	err := stack.Poll(ctx, strings.Join(command, " ")+" says what it took", func(ctx context.Context) (bool, error) {
		var out string
		out, last = lab.Exec(ctx, p, container, append(slices.Clone(command), "--exit")...)
		return json.Unmarshal([]byte(out), &got) == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
	return got
}

// Hold starts a CUDA program in a pod's main container that takes so many chunks and keeps them, and returns when it has them.
func Hold(t *testing.T, lab *machine.Lab, p *corev1.Pod, chunks int) {
	t.Helper()
	script := fmt.Sprintf("/bin/tenant --most %d >/tmp/held 2>&1 & while ! /bin/cat /tmp/held | /bin/grep -q chunks; do /bin/sleep 0.05; done", chunks)
	if out, err := lab.Exec(t.Context(), p, "main", "/bin/sh", "-c", "/bin/mkdir -p /tmp; "+script); err != nil {
		t.Fatalf("holding memory in %s: %v\n%s", p.Name, err, out)
	}
}

// Logged waits for the line that the CUDA program of a pod's first container prints after so many restarts.
func Logged(t *testing.T, lab *machine.Lab, p *corev1.Pod, restart int) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	var got Outcome
	err := stack.Poll(ctx, "the tenant's program has said what it took", func(context.Context) (bool, error) {
		line, _ := lab.Log(p, p.Spec.Containers[0].Name, restart)
		var err error
		got, err = Decode(line)
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
