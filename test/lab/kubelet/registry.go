// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerpb "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	scanInterval    = 200 * time.Millisecond
	registerTimeout = 5 * time.Second
	registerRetry   = time.Second
)

// socketID tells one life of a socket file from the next: an agent that was killed and started again makes the same
// name anew.
type socketID struct {
	path  string
	inode uint64
	ctime syscall.Timespec
}

// plugin is one registered instance of a driver.
type plugin struct {
	socket socketID
	driver string
	since  time.Time
	conn   *grpc.ClientConn
}

// registry watches the directory in which drivers announce themselves, and keeps connections to those registered.
type registry struct {
	dir     string
	log     *slog.Logger
	now     func() time.Time
	changed func(drivers []Driver)

	mu      sync.Mutex
	plugins []plugin
	// retry holds when a socket whose registration failed is tried again.
	retry map[socketID]time.Time
}

// run scans until the context ends. Scanning, unlike watching, cannot miss a socket that was replaced quickly.
func (r *registry) run(ctx context.Context) {
	tick := time.NewTicker(scanInterval)
	defer tick.Stop()
	for {
		r.scan(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *registry) scan(ctx context.Context) {
	found, err := sockets(r.dir)
	if err != nil {
		r.log.Error("scanning for driver sockets", "error", err)
		return
	}
	changed := r.forget(found)
	for _, socket := range r.due(found) {
		registered, err := r.register(ctx, socket)
		r.mu.Lock()
		if err != nil {
			r.retry[socket] = r.now().Add(registerRetry)
		} else {
			r.plugins = append(r.plugins, registered)
			changed = true
		}
		r.mu.Unlock()
		if err != nil {
			r.log.Warn("registering a driver", "socket", socket.path, "error", err)
		} else {
			r.log.Info("registered a driver", "driver", registered.driver, "socket", socket.path)
		}
	}
	if changed {
		r.changed(r.drivers())
	}
}

// sockets lists the sockets in a directory, subdirectories apart.
func sockets(dir string) ([]socketID, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	var found []socketID
	for _, entry := range entries {
		if entry.Type()&os.ModeSocket == 0 {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			continue // removed meanwhile
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil, fmt.Errorf("no inode is known of %s", entry.Name())
		}
		found = append(found, socketID{path: filepath.Join(dir, entry.Name()), inode: stat.Ino, ctime: stat.Ctim})
	}
	return found, nil
}

// forget drops the plugins whose sockets are gone and says whether there were any.
func (r *registry) forget(found []socketID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.plugins)
	r.plugins = slices.DeleteFunc(r.plugins, func(p plugin) bool {
		gone := !slices.Contains(found, p.socket)
		if gone {
			r.log.Info("a driver is gone", "driver", p.driver, "socket", p.socket.path)
			_ = p.conn.Close()
		}
		return gone
	})
	for socket := range r.retry {
		if !slices.Contains(found, socket) {
			delete(r.retry, socket)
		}
	}
	return len(r.plugins) != before
}

// due lists the sockets to register now.
func (r *registry) due(found []socketID) []socketID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(found), func(s socketID) bool {
		known := slices.ContainsFunc(r.plugins, func(p plugin) bool { return p.socket == s })
		return known || r.now().Before(r.retry[s])
	})
}

// register asks a socket what it is and tells it whether it is accepted.
func (r *registry) register(ctx context.Context, socket socketID) (plugin, error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := dial(socket.path)
	if err != nil {
		return plugin{}, err
	}
	defer conn.Close()
	client := registerpb.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registerpb.InfoRequest{})
	if err != nil {
		return plugin{}, fmt.Errorf("asking what it is: %w", err)
	}
	refusal := refuse(info)
	status := &registerpb.RegistrationStatus{PluginRegistered: refusal == "", Error: refusal}
	if _, err := client.NotifyRegistrationStatus(ctx, status); err != nil {
		return plugin{}, fmt.Errorf("telling it the outcome: %w", err)
	}
	if refusal != "" {
		return plugin{}, fmt.Errorf("refused: %s", refusal)
	}
	service, err := dial(info.GetEndpoint())
	if err != nil {
		return plugin{}, err
	}
	return plugin{socket: socket, driver: info.GetName(), since: r.now(), conn: service}, nil
}

// refuse says why a plugin is not accepted; empty means that it is.
func refuse(info *registerpb.PluginInfo) string {
	switch {
	case info.GetType() != registerpb.DRAPlugin:
		return fmt.Sprintf("its type is %q, this kubelet knows %s alone", info.GetType(), registerpb.DRAPlugin)
	case info.GetName() == "":
		return "it has no name"
	case !filepath.IsAbs(info.GetEndpoint()):
		return fmt.Sprintf("its endpoint %q is no absolute path", info.GetEndpoint())
	case !slices.Contains(info.GetSupportedVersions(), drapb.DRAPluginService):
		return fmt.Sprintf("it serves %v, this kubelet speaks %s alone", info.GetSupportedVersions(), drapb.DRAPluginService)
	}
	return ""
}

// dial connects lazily; a driver that starts again on the same socket is found again within a second.
func dial(path string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", path, err)
	}
	return conn, nil
}

// drivers lists the drivers registered, each once, in the order of their names.
func (r *registry) drivers() []Driver {
	r.mu.Lock()
	defer r.mu.Unlock()
	latest := map[string]time.Time{}
	for _, p := range r.plugins {
		latest[p.driver] = p.since
	}
	list := make([]Driver, 0, len(latest))
	for _, name := range slices.Sorted(maps.Keys(latest)) {
		list = append(list, Driver{Name: name, Since: latest[name]})
	}
	return list
}

// driver returns a client of the instance of a driver that registered last: during an upgrade two overlap.
func (r *registry) driver(name string) (drapb.DRAPluginClient, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range slices.Backward(r.plugins) {
		if p.driver == name {
			return drapb.NewDRAPluginClient(p.conn), nil
		}
	}
	return nil, fmt.Errorf("the driver %s is not registered on this node", name)
}

// close ends all connections.
func (r *registry) close() {
	r.forget(nil)
}
