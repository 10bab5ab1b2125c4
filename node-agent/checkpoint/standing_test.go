// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

func TestMade(t *testing.T) {
	store, err := checkpoint.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if made, err := store.Made(); err != nil || len(made.GPUs) > 0 {
		t.Errorf("before the first write: %v, %v", made, err)
	}
	want := checkpoint.Made{Version: checkpoint.Version, GPUs: map[string][]checkpoint.Placement{
		"GPU-0": {{Profile: "3g.40gb", Start: 4, Size: 4}},
	}}
	if err := store.SaveMade(want); err != nil {
		t.Fatal(err)
	}
	got, err := store.Made()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if !got.Has("GPU-0", gpu.Placement{Profile: "3g.40gb", Start: 4}) || got.Has("GPU-0", gpu.Placement{Profile: "3g.40gb"}) ||
		got.Has("GPU-1", gpu.Placement{Profile: "3g.40gb", Start: 4}) {
		t.Error("Has() does not tell placements apart")
	}
}

func TestADamagedRecordOfInstancesIsAnError(t *testing.T) {
	for _, tc := range []struct{ name, data string }{
		{name: "half a record", data: `{"version": 1, "gp`},
		{name: "a record without its list", data: `{"version": 1}`},
		{name: "a record of a later version", data: `{"version": 2, "gpus": {}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), checkpoint.MadeFile)
			if err := os.WriteFile(path, []byte(tc.data), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := checkpoint.Open(filepath.Dir(path))
			if !errors.Is(err, checkpoint.ErrUnreadable) || !strings.Contains(err.Error(), path) {
				t.Errorf("Open() = %v, want ErrUnreadable and the file's name", err)
			}
		})
	}
}

func TestTakeIdle(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(start, size int) checkpoint.Idle {
		return checkpoint.Idle{GPU: "GPU-0", Placement: checkpoint.Placement{Profile: "p", Start: start, Size: size}, Until: now}
	}
	claims := checkpoint.Claims{Idle: []checkpoint.Idle{at(0, 1), at(4, 4), {GPU: "GPU-1", Placement: at(4, 4).Placement}}}
	taken := claims.TakeIdle("GPU-0", checkpoint.Placement{Profile: "q", Start: 6, Size: 1})
	if diff := cmp.Diff([]checkpoint.Idle{at(4, 4)}, taken); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	if len(claims.Idle) != 2 || claims.IdleAt("GPU-0", gpu.Placement{Profile: "p", Start: 4}) || !claims.IdleAt("GPU-0", gpu.Placement{Profile: "p"}) {
		t.Errorf("left: %v", claims.Idle)
	}
}
