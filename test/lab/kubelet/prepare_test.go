// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerpb "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// fakeDriver serves a driver's two services on one socket and keeps what it was asked.
type fakeDriver struct {
	drapb.UnimplementedDRAPluginServer
	registerpb.UnimplementedRegistrationServer

	info *registerpb.PluginInfo

	mu       sync.Mutex
	calls    []string
	statuses []*registerpb.RegistrationStatus
	fail     string
}

func (d *fakeDriver) GetInfo(context.Context, *registerpb.InfoRequest) (*registerpb.PluginInfo, error) {
	return d.info, nil
}

func (d *fakeDriver) NotifyRegistrationStatus(_ context.Context, status *registerpb.RegistrationStatus) (*registerpb.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.statuses = append(d.statuses, status)
	return &registerpb.RegistrationStatusResponse{}, nil
}

func (d *fakeDriver) NodePrepareResources(_ context.Context, request *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	response := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	for _, claim := range request.GetClaims() {
		d.called("prepare " + claim.GetName())
		response.Claims[claim.GetUid()] = &drapb.NodePrepareResourceResponse{
			Devices: []*drapb.Device{{PoolName: "pool", DeviceName: "dev", CdiDeviceIds: []string{"v/gpu=" + claim.GetUid()}}}, Error: d.fail,
		}
	}
	return response, nil
}

func (d *fakeDriver) NodeUnprepareResources(_ context.Context, request *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	response := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	for _, claim := range request.GetClaims() {
		d.called("unprepare " + claim.GetName())
		response.Claims[claim.GetUid()] = &drapb.NodeUnprepareResourceResponse{Error: d.fail}
	}
	return response, nil
}

func (d *fakeDriver) called(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, what)
}

// take returns the calls since it was asked last.
func (d *fakeDriver) take() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := strings.Join(d.calls, ", ")
	d.calls = nil
	return calls
}

// serve serves the driver until the test's end.
func serve(t *testing.T, socket string, d *fakeDriver) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	drapb.RegisterDRAPluginServer(server, d)
	registerpb.RegisterRegistrationServer(server, d)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
}

func newRegistry(t *testing.T) (*registry, string) {
	t.Helper()
	dir := t.TempDir()
	r := &registry{
		dir: dir, log: slog.New(slog.DiscardHandler), now: time.Now,
		changed: func([]Driver) {}, retry: map[socketID]time.Time{},
	}
	t.Cleanup(r.close)
	return r, filepath.Join(dir, "s") // a socket's path is short
}

func TestRegistration(t *testing.T) {
	good := func(socket string) *registerpb.PluginInfo {
		return &registerpb.PluginInfo{Type: registerpb.DRAPlugin, Name: "d", Endpoint: socket, SupportedVersions: []string{drapb.DRAPluginService}}
	}
	for _, tc := range []struct {
		name string
		edit func(*registerpb.PluginInfo)
		want bool
	}{
		{name: "a DRA driver is registered", edit: func(*registerpb.PluginInfo) {}, want: true},
		{name: "a CSI driver is refused", edit: func(i *registerpb.PluginInfo) { i.Type = registerpb.CSIPlugin }},
		{name: "a driver without a name is refused", edit: func(i *registerpb.PluginInfo) { i.Name = "" }},
		{name: "a driver of another version is refused", edit: func(i *registerpb.PluginInfo) { i.SupportedVersions = []string{"v9.DRAPlugin"} }},
		{name: "a driver with a relative endpoint is refused", edit: func(i *registerpb.PluginInfo) { i.Endpoint = "dra.sock" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, socket := newRegistry(t)
			d := &fakeDriver{info: good(socket)}
			tc.edit(d.info)
			serve(t, socket, d)
			r.scan(t.Context())
			if got := len(r.drivers()) == 1; got != tc.want {
				t.Errorf("registered: %v, want %v", got, tc.want)
			}
			if len(d.statuses) != 1 || d.statuses[0].GetPluginRegistered() != tc.want || (d.statuses[0].GetError() == "") != tc.want {
				t.Errorf("the driver was told %v", d.statuses)
			}
		})
	}
}

func TestDriverThatStartsAgainIsRegisteredAnew(t *testing.T) {
	r, socket := newRegistry(t)
	d := &fakeDriver{info: &registerpb.PluginInfo{Type: registerpb.DRAPlugin, Name: "d", Endpoint: socket, SupportedVersions: []string{drapb.DRAPluginService}}}
	serve(t, socket, d)
	r.scan(t.Context())
	r.scan(t.Context())
	if len(d.statuses) != 1 {
		t.Fatalf("registered %d times, want once", len(d.statuses))
	}
	// As after a kill: the socket's file is replaced, with no moment at which a scan would miss it.
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	serve(t, socket, d)
	r.scan(t.Context())
	if len(d.statuses) != 2 || len(r.drivers()) != 1 {
		t.Errorf("after the new start: registered %d times as %v", len(d.statuses), r.drivers())
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	r.scan(t.Context())
	if got := r.drivers(); len(got) != 0 {
		t.Errorf("after the driver has gone: %v", got)
	}
}

func TestPrepareAndUnprepare(t *testing.T) {
	r, socket := newRegistry(t)
	d := &fakeDriver{info: &registerpb.PluginInfo{Type: registerpb.DRAPlugin, Name: "d", Endpoint: socket, SupportedVersions: []string{drapb.DRAPluginService}}}
	serve(t, socket, d)
	r.scan(t.Context())
	file := filepath.Join(t.TempDir(), "checkpoint")
	open := func() *preparer {
		c, err := openCheckpoint(file)
		if err != nil {
			t.Fatal(err)
		}
		return &preparer{registry: r, checkpoint: c}
	}
	shared := fetchedClaim{podClaim: podClaim{object: "shared"}, uid: "s", drivers: []string{"d"}}
	own := fetchedClaim{podClaim: podClaim{object: "own"}, uid: "o", drivers: []string{"d"}}
	var p *preparer
	for _, step := range []struct {
		name, fail string
		do         func() error
		wantCalls  string
		wantErr    bool
		wantClaims []types.UID
	}{
		{name: "a first pod's claims are prepared in one call", do: func() error {
			_, err := p.prepare(t.Context(), "pod-1", []fetchedClaim{shared, own})
			return err
		}, wantCalls: "prepare shared, prepare own", wantClaims: []types.UID{"o", "s"}},
		{name: "what is prepared is not asked again", do: func() error {
			got, err := p.prepare(t.Context(), "pod-2", []fetchedClaim{shared})
			if err == nil && got["s"].Devices[0].CDI[0] != "v/gpu=s" {
				t.Errorf("the second pod gets %+v", got["s"])
			}
			return err
		}, wantClaims: []types.UID{"o", "s"}},
		{name: "a claim that another pod uses stays", do: func() error {
			return p.unprepare(t.Context(), "pod-1")
		}, wantCalls: "unprepare own", wantClaims: []types.UID{"s"}},
		{name: "a claim that fails to be unprepared is remembered", fail: "broken", do: func() error {
			return p.unprepare(t.Context(), "pod-2")
		}, wantCalls: "unprepare shared", wantErr: true, wantClaims: []types.UID{"s"}},
		{name: "the last pod's leaving unprepares", do: func() error {
			return p.unprepare(t.Context(), "pod-2")
		}, wantCalls: "unprepare shared"},
		{name: "a claim that fails to be prepared is remembered", fail: "broken", do: func() error {
			_, err := p.prepare(t.Context(), "pod-3", []fetchedClaim{own})
			return err
		}, wantCalls: "prepare own", wantErr: true, wantClaims: []types.UID{"o"}},
		{name: "and unprepared, though it never was ready", do: func() error {
			return p.unprepare(t.Context(), "pod-3")
		}, wantCalls: "unprepare own"},
	} {
		t.Run(step.name, func(t *testing.T) {
			p = open() // as after a restart, each time
			d.fail = step.fail
			if err := step.do(); (err != nil) != step.wantErr {
				t.Errorf("error %v, want one: %v", err, step.wantErr)
			}
			if got := d.take(); got != step.wantCalls {
				t.Errorf("the driver was asked to %q, want %q", got, step.wantCalls)
			}
			var claims []types.UID
			for _, claim := range open().checkpoint.all() {
				claims = append(claims, claim.UID)
			}
			if !slices.Equal(claims, step.wantClaims) {
				t.Errorf("the checkpoint has %v, want %v", claims, step.wantClaims)
			}
		})
	}
}

func TestUnreadableCheckpointIsAnError(t *testing.T) {
	for _, tc := range []struct{ name, content string }{
		{name: "a broken file", content: "{"},
		{name: "a later version", content: `{"version":2}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "checkpoint")
			if err := os.WriteFile(file, []byte(tc.content), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := openCheckpoint(file); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("openCheckpoint says %v, want an error with the file's name", err)
			}
		})
	}
}
