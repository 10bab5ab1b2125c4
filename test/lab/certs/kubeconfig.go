// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// User is who a kubeconfig speaks for: a client certificate or a token.
type User struct {
	Name  string
	Pair  Pair
	Token string
}

// WriteKubeconfig writes a self-contained kubeconfig; only its owner may read it.
func WriteKubeconfig(path, server string, ca []byte, user User) error {
	const cluster = "lab"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	info := &clientcmdapi.AuthInfo{Token: user.Token}
	if user.Token == "" {
		info.ClientCertificateData, info.ClientKeyData = user.Pair.Cert, user.Pair.Key
	}
	config.AuthInfos[user.Name] = info
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user.Name}
	config.CurrentContext = cluster
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", user.Name, err)
	}
	return nil
}
