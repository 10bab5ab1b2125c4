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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// tokenLifetime is how long the manager's token lasts: longer than any demo stays up unattended.
const tokenLifetime = "72h"

// install applies what config/ says and starts the manager beside the cluster, as its own service account, so that its
// rights are the ones it will have in a cluster.
func (s *Stack) install(ctx context.Context, managerArgs []string) error {
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", Path("config", "crd")},
		{"wait", "--for=condition=Established", "--timeout=60s", "-f", Path("config", "crd")},
		{"apply", "--server-side", "-k", Path("config", "rbac")},
	} {
		if _, err := s.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	if err := s.applyWebhook(ctx, ports[0]); err != nil {
		return err
	}
	kubeconfig, err := s.serviceAccountKubeconfig(ctx, "sluice-manager")
	if err != nil {
		return err
	}
	args := append([]string{"run", "manager", "--env", "POD_NAMESPACE=" + Namespace, "--", Path("bin", "manager"),
		"--kubeconfig=" + kubeconfig, "--webhook-port=" + strconv.Itoa(ports[0]),
		"--webhook-dns-names=localhost", "--webhook-cert-dir=" + filepath.Join(s.Dir, "webhook-certs"),
		"--health-probe-bind-address=127.0.0.1:" + strconv.Itoa(ports[1]),
		"--metrics-bind-address=127.0.0.1:" + strconv.Itoa(ports[2])}, managerArgs...)
	if err := s.lab(ctx, args...); err != nil {
		return err
	}
	return s.waitForWebhook(ctx)
}

// applyWebhook points the webhook at the manager on loopback; certificates come from the manager itself.
func (s *Stack) applyWebhook(ctx context.Context, port int) error {
	config, err := s.webhookConfiguration()
	if err != nil {
		return err
	}
	for i := range config.Webhooks {
		w := &config.Webhooks[i]
		url := "https://localhost:" + strconv.Itoa(port) + ptr.Deref(w.ClientConfig.Service.Path, "/")
		w.ClientConfig = admission.WebhookClientConfig{URL: &url}
	}
	if err := s.Client.Create(ctx, config); err != nil {
		return fmt.Errorf("creating the webhook configuration: %w", err)
	}
	return nil
}

func (s *Stack) webhookConfiguration() (*admission.MutatingWebhookConfiguration, error) {
	rendered, err := s.Kubectl(context.Background(), "kustomize", Path("config", "webhook"))
	if err != nil {
		return nil, err
	}
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		var config admission.MutatingWebhookConfiguration
		if err := yaml.Unmarshal([]byte(document), &config); err != nil {
			return nil, fmt.Errorf("decoding config/webhook: %w", err)
		}
		if config.Kind == "MutatingWebhookConfiguration" {
			return &config, nil
		}
	}
	return nil, fmt.Errorf("config/webhook has no MutatingWebhookConfiguration")
}

// waitForWebhook waits until the manager has made certificates and the API server trusts them.
func (s *Stack) waitForWebhook(ctx context.Context) error {
	config, err := s.webhookConfiguration()
	if err != nil {
		return err
	}
	return Poll(ctx, "the webhook answers", func(ctx context.Context) (bool, error) {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
			return false, err
		}
		for _, w := range config.Webhooks {
			if len(w.ClientConfig.CABundle) == 0 {
				return false, nil
			}
		}
		return s.webhookAnswers(ctx), nil
	})
}

// serviceAccountKubeconfig writes a kubeconfig with a token of a service account of Sluice.
func (s *Stack) serviceAccountKubeconfig(ctx context.Context, account string) (string, error) {
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
