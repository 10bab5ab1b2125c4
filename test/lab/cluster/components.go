// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"path/filepath"

	"github.com/sluice-gpu/sluice/test/lab/binaries"
)

// Options say how a lab is brought up.
type Options struct {
	// Dir is the lab's directory.
	Dir Dir
	// Binaries is the directory of the programs.
	Binaries string
	// FeatureGates are gates beyond the defaults, as A=true,B=false, for all Kubernetes components.
	FeatureGates string
	// Extra are further arguments by component name; they come last and win.
	Extra map[string][]string
	// QPS is how many requests a second the scheduler and the controller manager may send; bursts are twice that.
	QPS int
	// Audit writes all requests, without bodies, to logs/audit.log.
	Audit bool
	// Machines lets the API server reach machines, whose networks are their own.
	Machines bool
}

// serviceRange holds the addresses of Services. Nothing routes them; the API server wants one.
const serviceRange = "10.96.0.0/16"

// components lists what a lab runs, in the order of start.
func components(o Options, ports Ports) []Component {
	local := func(scheme string, port int, path string) string {
		return fmt.Sprintf("%s://127.0.0.1:%d%s", scheme, port, path)
	}
	list := []Component{
		{Name: binaries.Etcd, Args: etcdArgs(o, ports), Health: local("http", ports.Etcd, "/health")},
		{Name: binaries.APIServer, Args: apiServerArgs(o, ports), Health: local("https", ports.APIServer, "/readyz")},
		{
			Name: binaries.ControllerManager, Args: controllerManagerArgs(o, ports),
			Health: local("https", ports.ControllerManager, "/healthz"),
			// It calls itself healthy before its controllers run, and ends if the API server goes away before that. The
			// first service account is the sign that they do, and pods cannot be created without it.
			Works: local("https", ports.APIServer, "/api/v1/namespaces/default/serviceaccounts/default"),
		},
		{Name: binaries.Scheduler, Args: schedulerArgs(o, ports), Health: local("https", ports.Scheduler, "/readyz")},
	}
	for i := range list {
		c := &list[i]
		if o.FeatureGates != "" && c.Name != binaries.Etcd {
			c.Args = append(c.Args, "--feature-gates="+o.FeatureGates)
		}
		c.Args = append(c.Args, o.Extra[c.Name]...)
		c.Log = filepath.Join(o.Dir.logs(), c.Name+".log")
	}
	return list
}

func etcdArgs(o Options, ports Ports) []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", ports.Etcd)
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports.EtcdPeer)
	return []string{
		"--name=lab", "--data-dir=" + o.Dir.etcd(),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
		// A lab's data need not outlive the machine, and syncing it takes most of the start.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

func apiServerArgs(o Options, ports Ports) []string {
	certs := o.Dir.Certs()
	args := []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", ports.Etcd),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports.APIServer),
		"--client-ca-file=" + filepath.Join(certs, "ca.crt"),
		"--tls-cert-file=" + filepath.Join(certs, binaries.APIServer+".crt"),
		"--tls-private-key-file=" + filepath.Join(certs, binaries.APIServer+".key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + filepath.Join(certs, "service-account.key"),
		"--service-account-signing-key-file=" + filepath.Join(certs, "service-account.key"),
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--requestheader-client-ca-file=" + filepath.Join(certs, "front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + filepath.Join(certs, "front-proxy-client.crt"),
		"--proxy-client-key-file=" + filepath.Join(certs, "front-proxy-client.key"),
		// Loopback is no address that the kubernetes Service could point at; without this the reconciler only logs errors.
		"--endpoint-reconciler-type=none",
		"--profiling=false",
	}
	if o.Audit {
		args = append(args, "--audit-policy-file="+o.Dir.path("audit-policy.yaml"), "--audit-log-path="+filepath.Join(o.Dir.logs(), "audit.log"))
	}
	if o.Machines {
		args = append(args, "--egress-selector-config-file="+o.Dir.EgressConfig(),
			// Webhooks are called at their pods' addresses: no Service's own address leads anywhere.
			"--enable-aggregator-routing=true",
			"--kubelet-client-certificate="+filepath.Join(certs, kubeletClient+".crt"),
			"--kubelet-client-key="+filepath.Join(certs, kubeletClient+".key"),
			"--kubelet-preferred-address-types=InternalIP",
		)
	}
	return args
}

func controllerManagerArgs(o Options, ports Ports) []string {
	return append(clientArgs(o, binaries.ControllerManager, ports.ControllerManager),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+filepath.Join(o.Dir.Certs(), "service-account.key"),
		"--root-ca-file="+filepath.Join(o.Dir.Certs(), "ca.crt"),
		// Two busy cores or a minute without the API server must not look like the loss of every node.
		"--node-monitor-grace-period=120s",
	)
}

func schedulerArgs(o Options, ports Ports) []string {
	return clientArgs(o, binaries.Scheduler, ports.Scheduler)
}

// clientArgs are what the API server's two clients share.
func clientArgs(o Options, name string, port int) []string {
	certs := o.Dir.Certs()
	kubeconfig := filepath.Join(certs, name+".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + filepath.Join(certs, name+".crt"), "--tls-private-key-file=" + filepath.Join(certs, name+".key"),
		fmt.Sprintf("--kube-api-qps=%d", o.QPS), fmt.Sprintf("--kube-api-burst=%d", 2*o.QPS),
		// There is one of each, and a lost lease would end it when the API server goes away for a while.
		"--leader-elect=false",
		"--profiling=false",
	}
}

// auditPolicy records who did what, without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// egressConfig sends what the API server has to say to nodes, pods and Services through the relay.
func egressConfig(socket string) string {
	return fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %q
`, socket)
}
