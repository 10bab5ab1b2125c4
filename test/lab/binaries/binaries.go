// SPDX-License-Identifier: Apache-2.0

// Package binaries provides the programs of a control plane: built from Go modules into a cache, or a directory given.
package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The programs of a control plane, and the kubelet.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Kubelet           = "kubelet"
)

// Names lists all programs.
func Names() []string {
	return []string{Etcd, APIServer, ControllerManager, Scheduler, Kubectl, Kubelet}
}

// Check says which programs of a control plane a directory lacks.
func Check(dir string) error { return check(dir, Names()) }

func check(dir string, names []string) error {
	var missing []string
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s holds no program named %s", dir, strings.Join(missing, ", "))
	}
	return nil
}

// CacheDir is the lab's cache: below $XDG_CACHE_HOME where it is set, else below the home directory.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory: %w", err)
	}
	return filepath.Join(base, "sluice-lab"), nil
}

// key names a build: the Kubernetes version, and a hash of all that goes into it.
func key(source fs.FS) (string, error) {
	version, err := kubernetesVersion(source)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = fs.WalkDir(source, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(source, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", path, len(content))
		sum.Write(content)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hashing the cluster's source: %w", err)
	}
	return version + "-" + hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// kubernetesVersion reads the version of k8s.io/kubernetes that the module requires.
func kubernetesVersion(source fs.FS) (string, error) {
	mod, err := fs.ReadFile(source, "go.mod")
	if err != nil {
		return "", fmt.Errorf("reading the lab's go.mod: %w", err)
	}
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" {
			return fields[1], nil
		}
	}
	return "", errors.New("the lab's go.mod does not require k8s.io/kubernetes")
}
