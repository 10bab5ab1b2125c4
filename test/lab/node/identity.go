// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/test/lab/certs"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
)

// writeKubeletIdentity makes the kubelet the node that it says it is, with a node's rights and no others.
func writeKubeletIdentity(dir cluster.Dir, lab *cluster.State, spec Spec, paths Paths, now time.Time) error {
	pair, err := certs.Read(dir.Certs(), "ca")
	if err != nil {
		return err
	}
	authority, err := certs.Load(pair, now)
	if err != nil {
		return err
	}
	user := "system:node:" + spec.Name
	client, err := authority.Client(user, "system:nodes")
	if err != nil {
		return err
	}
	return certs.WriteKubeconfig(paths.KubeletKubeconfig, lab.Server, pair.Cert, certs.User{Name: user, Pair: client})
}

// writeAgentIdentity gives the agent a fresh token of its service account, bound to the node, as its pod would have; or
// the administrator's rights if it has no service account.
func writeAgentIdentity(ctx context.Context, client kubernetes.Interface, dir cluster.Dir, lab *cluster.State, s *State) error {
	if len(s.Spec.Agent) == 0 {
		return nil
	}
	ca, err := certs.Read(dir.Certs(), "ca")
	if err != nil {
		return err
	}
	if s.Spec.ServiceAccount == "" {
		admin, err := certs.Read(dir.Certs(), cluster.AdminName)
		if err != nil {
			return err
		}
		return certs.WriteKubeconfig(s.Paths.Kubeconfig, lab.Server, ca.Cert, certs.User{Name: cluster.AdminName, Pair: admin})
	}
	namespace, name, ok := strings.Cut(s.Spec.ServiceAccount, "/")
	if !ok || namespace == "" || name == "" {
		return fmt.Errorf("the service account %q is not as in namespace/name", s.Spec.ServiceAccount)
	}
	node, err := client.CoreV1().Nodes().Get(ctx, s.Spec.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the node: %w", err)
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To[int64](24 * 60 * 60),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a token of the service account %s: %w", s.Spec.ServiceAccount, err)
	}
	user := certs.User{Name: "system:serviceaccount:" + namespace + ":" + name, Token: token.Status.Token}
	return certs.WriteKubeconfig(s.Paths.Kubeconfig, lab.Server, ca.Cert, user)
}
