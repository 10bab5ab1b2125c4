// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gpu/sluice/test/framework/front"
)

// tokenLifetime is how long the manager's token lasts: longer than any demo stays up unattended.
const tokenLifetime = "72h"

// install applies what config/ says and starts the managers beside the cluster, as their own service account, so that
// their rights are the ones they will have in a cluster.
func (s *Stack) install(ctx context.Context, o Options) error {
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", Path("config", "crd")},
		{"wait", "--for=condition=Established", "--timeout=60s", "-f", Path("config", "crd")},
		{"apply", "--server-side", "-k", Path("config", "rbac")},
	} {
		if _, err := s.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	replicas := max(1, o.Managers)
	ports, err := freePorts(portsEach*replicas + 1)
	if err != nil {
		return err
	}
	address := ports[0]
	if replicas > 1 {
		address = ports[portsEach*replicas]
		if err := s.standBefore(ctx, address, ports, replicas); err != nil {
			return err
		}
	}
	if err := s.applyWebhooks(ctx, address); err != nil {
		return err
	}
	kubeconfig, err := s.ServiceAccountKubeconfig(ctx, "sluice-manager")
	if err != nil {
		return err
	}
	for i := range replicas {
		if err := s.startManager(ctx, i, kubeconfig, ports[portsEach*i:], o.ManagerArgs); err != nil {
			return err
		}
	}
	return s.waitForWebhooks(ctx)
}

// portsEach is how many ports a manager listens on: webhook, health and metrics.
const portsEach = 3

// ManagerName is the component's name of a replica of the manager, from 0.
func ManagerName(replica int) string {
	if replica == 0 {
		return "manager"
	}
	return "manager-" + strconv.Itoa(replica+1)
}

func (s *Stack) certDir(replica int) string {
	return filepath.Join(s.Dir, "webhook-certs", strconv.Itoa(replica))
}

func (s *Stack) startManager(ctx context.Context, replica int, kubeconfig string, ports []int, more []string) error {
	s.metrics = append(s.metrics, loopback(ports[2]))
	args := append([]string{"run", ManagerName(replica), "--env", "POD_NAMESPACE=" + Namespace, "--", Path("bin", "manager"),
		"--kubeconfig=" + kubeconfig, "--webhook-port=" + strconv.Itoa(ports[0]),
		"--webhook-dns-names=localhost", "--webhook-cert-dir=" + s.certDir(replica), "--advertise-address=" + loopback(ports[0]),
		"--health-probe-bind-address=" + loopback(ports[1]),
		"--metrics-bind-address=" + loopback(ports[2])}, more...)
	return s.lab(ctx, args...)
}

// standBefore gives several managers one address.
func (s *Stack) standBefore(ctx context.Context, address int, ports []int, replicas int) error {
	var behind []string
	for i := range replicas {
		behind = append(behind, loopback(ports[portsEach*i]))
	}
	var err error
	s.front, err = front.Listen(ctx, loopback(address), s.certDir(0), behind)
	return err
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// applyWebhooks points the webhooks at the managers on loopback; certificates come from the managers themselves.
func (s *Stack) applyWebhooks(ctx context.Context, port int) error {
	configs, err := s.webhookConfigurations()
	if err != nil {
		return err
	}
	for _, config := range configs {
		for _, c := range clientConfigs(config) {
			url := "https://localhost:" + strconv.Itoa(port) + ptr.Deref(c.Service.Path, "/")
			*c = admission.WebhookClientConfig{URL: &url}
		}
		if err := s.Client.Create(ctx, config); err != nil {
			return fmt.Errorf("creating the webhook configuration %s: %w", config.GetName(), err)
		}
	}
	return nil
}

// webhookConfigurations are those of config/webhook.
func (s *Stack) webhookConfigurations() ([]client.Object, error) {
	rendered, err := s.Kubectl(context.Background(), "kustomize", Path("config", "webhook"))
	if err != nil {
		return nil, err
	}
	var configs []client.Object
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
			return nil, fmt.Errorf("decoding config/webhook: %w", err)
		}
		var config client.Object
		switch meta.Kind {
		case "MutatingWebhookConfiguration":
			config = &admission.MutatingWebhookConfiguration{}
		case "ValidatingWebhookConfiguration":
			config = &admission.ValidatingWebhookConfiguration{}
		default:
			continue
		}
		if err := yaml.Unmarshal([]byte(document), config); err != nil {
			return nil, fmt.Errorf("decoding config/webhook: %w", err)
		}
		configs = append(configs, config)
	}
	return configs, nil
}

func clientConfigs(config client.Object) []*admission.WebhookClientConfig {
	var found []*admission.WebhookClientConfig
	switch c := config.(type) {
	case *admission.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			found = append(found, &c.Webhooks[i].ClientConfig)
		}
	case *admission.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			found = append(found, &c.Webhooks[i].ClientConfig)
		}
	}
	return found
}

// waitForWebhooks waits until the managers have made certificates and the API server trusts them.
func (s *Stack) waitForWebhooks(ctx context.Context) error {
	configs, err := s.webhookConfigurations()
	if err != nil {
		return err
	}
	return Poll(ctx, "the webhooks answer", func(ctx context.Context) (bool, error) {
		for _, config := range configs {
			if err := s.Client.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
				return false, fmt.Errorf("reading webhook configuration %s: %w", config.GetName(), err)
			}
			for _, c := range clientConfigs(config) {
				if len(c.CABundle) == 0 {
					return false, nil
				}
			}
		}
		return s.webhookAnswers(ctx), nil
	})
}

// ServiceAccountKubeconfig writes a kubeconfig with a token of a service account of Sluice.
func (s *Stack) ServiceAccountKubeconfig(ctx context.Context, account string) (string, error) {
	token, err := s.Kubectl(ctx, "create", "token", account, "-n", Namespace, "--duration="+tokenLifetime)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.LoadFromFile(s.Kubeconfig)
	if err != nil {
		return "", fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	}
	path := filepath.Join(s.Dir, account+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing the kubeconfig of %s: %w", account, err)
	}
	return path, os.Chmod(path, 0o600)
}

// freePorts finds ports on loopback that nothing listens on.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		addr, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("reading a free port: %w", err)
		}
		ports = append(ports, int(addr.Port()))
	}
	return ports, nil
}
