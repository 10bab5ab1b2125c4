// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-gpu/sluice/test/lab/binaries"
	"github.com/sluice-gpu/sluice/test/lab/certs"
	"github.com/sluice-gpu/sluice/test/lab/process"
)

// AdminName is the administrator's user name, and the name of their certificate's files.
const AdminName = "lab-admin"

// kubeletClient names the files of the certificate by which kubelets know the API server.
const kubeletClient = "kubelet-client"

// prepare makes all files of a fresh lab and returns its state, with nothing started.
func prepare(o Options, now time.Time) (*State, error) {
	free, err := process.FreePorts(5)
	if err != nil {
		return nil, fmt.Errorf("choosing ports: %w", err)
	}
	ports := Ports{Etcd: free[0], EtcdPeer: free[1], APIServer: free[2], ControllerManager: free[3], Scheduler: free[4]}
	state := &State{
		Version: stateVersion, Binaries: o.Binaries, Ports: ports,
		Server:     fmt.Sprintf("https://127.0.0.1:%d", ports.APIServer),
		Kubeconfig: o.Dir.kubeconfig(), Components: components(o, ports),
	}
	if err := writeIdentities(o.Dir, state.Server, now); err != nil {
		return nil, err
	}
	if o.Audit {
		if err := os.WriteFile(o.Dir.path("audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
			return nil, fmt.Errorf("writing the audit policy: %w", err)
		}
	}
	if o.Machines {
		if err := os.WriteFile(o.Dir.EgressConfig(), []byte(egressConfig(o.Dir.EgressSocket())), 0o644); err != nil {
			return nil, fmt.Errorf("writing the egress configuration: %w", err)
		}
	}
	return state, nil
}

func writeIdentities(dir Dir, server string, now time.Time) error {
	authority, err := certs.NewAuthority(now)
	if err != nil {
		return err
	}
	if err := authority.Pair.Write(dir.Certs(), "ca"); err != nil {
		return err
	}
	for _, name := range []string{binaries.APIServer, binaries.ControllerManager, binaries.Scheduler} {
		pair, err := authority.Server(name, "kubernetes", "kubernetes.default", "kubernetes.default.svc")
		if err != nil {
			return err
		}
		if err := pair.Write(dir.Certs(), name); err != nil {
			return err
		}
	}
	if err := writeFrontProxy(dir, now); err != nil {
		return err
	}
	client, err := authority.Client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	if err := client.Write(dir.Certs(), kubeletClient); err != nil {
		return err
	}
	key, err := certs.SigningKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir.Certs(), "service-account.key"), key, 0o600); err != nil {
		return fmt.Errorf("writing the service-account key: %w", err)
	}
	for _, user := range []struct {
		path, name string
		groups     []string
	}{
		{path: dir.kubeconfig(), name: AdminName, groups: []string{"system:masters"}},
		{path: filepath.Join(dir.Certs(), binaries.ControllerManager+".kubeconfig"), name: "system:kube-controller-manager"},
		{path: filepath.Join(dir.Certs(), binaries.Scheduler+".kubeconfig"), name: "system:kube-scheduler"},
	} {
		pair, err := authority.Client(user.name, user.groups...)
		if err != nil {
			return err
		}
		if user.name == AdminName {
			if err := pair.Write(dir.Certs(), AdminName); err != nil {
				return err
			}
		}
		if err := certs.WriteKubeconfig(user.path, server, authority.Pair.Cert, certs.User{Name: user.name, Pair: pair}); err != nil {
			return err
		}
	}
	return nil
}

// writeFrontProxy makes the identity by which the API server calls aggregated API servers, signed by an authority of its
// own: whoever holds it may speak for anybody there.
func writeFrontProxy(dir Dir, now time.Time) error {
	authority, err := certs.NewAuthority(now)
	if err != nil {
		return err
	}
	if err := authority.Pair.Write(dir.Certs(), "front-proxy-ca"); err != nil {
		return err
	}
	client, err := authority.Client("front-proxy-client")
	if err != nil {
		return err
	}
	return client.Write(dir.Certs(), "front-proxy-client")
}
