// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/test/lab/binaries"
)

func TestComponents(t *testing.T) {
	o := Options{
		Dir: "/lab", FeatureGates: "A=true", QPS: 7, Audit: true,
		Extra: map[string][]string{binaries.Scheduler: {"--v=4"}},
	}
	byName := map[string]string{}
	for _, c := range components(o, Ports{Etcd: 1, EtcdPeer: 2, APIServer: 3, ControllerManager: 4, Scheduler: 5}) {
		byName[c.Name] = strings.Join(c.Args, " ")
	}
	for _, tc := range []struct {
		name, component, arg string
		want                 bool
	}{
		{name: "rights are enforced, nodes' too", component: binaries.APIServer, arg: "--authorization-mode=Node,RBAC", want: true},
		{name: "the API server listens on loopback alone", component: binaries.APIServer, arg: "--bind-address=127.0.0.1", want: true},
		{name: "the audit log is written where asked for", component: binaries.APIServer, arg: "--audit-log-path=/lab/logs/audit.log", want: true},
		{name: "feature gates reach Kubernetes", component: binaries.ControllerManager, arg: "--feature-gates=A=true", want: true},
		{name: "feature gates do not reach etcd", component: binaries.Etcd, arg: "--feature-gates", want: false},
		{name: "an extra argument reaches its component", component: binaries.Scheduler, arg: "--v=4", want: true},
		{name: "an extra argument reaches no other", component: binaries.ControllerManager, arg: "--v=4", want: false},
		{name: "the scheduler's rate is as asked for", component: binaries.Scheduler, arg: "--kube-api-qps=7", want: true},
		{name: "a lost lease does not end the controller manager", component: binaries.ControllerManager, arg: "--leader-elect=false", want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := strings.Contains(byName[tc.component], tc.arg); got != tc.want {
				t.Errorf("%s has %s: %v, want %v", tc.component, tc.arg, got, tc.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := Dir(t.TempDir())
	if _, err := dir.Load(); !errors.Is(err, ErrNoLab) {
		t.Errorf("an empty directory gives %v, want ErrNoLab", err)
	}
	if err := os.WriteFile(dir.state(), []byte(`{"version":99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Load(); err == nil || errors.Is(err, ErrNoLab) {
		t.Errorf("a state of another version gives %v, want an error of its own", err)
	}
}

func TestDownLeavesWhatIsNotTheLabs(t *testing.T) {
	dir := Dir(t.TempDir())
	mine := filepath.Join(string(dir), "notes.txt")
	if err := os.WriteFile(mine, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir.etcd(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Down(dir, false); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, []string{"notes.txt"}) {
		t.Errorf("left: %v, want notes.txt alone", names)
	}
	if err := Down(Dir(filepath.Join(string(dir), "none")), false); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	}
}
