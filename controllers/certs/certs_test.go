// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const namespace = "sluice-system"

func secret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName}, Data: data}
}

func TestTheCertificateIsWrittenWithoutTheAuthoritysKey(t *testing.T) {
	tests := []struct {
		name string
		data map[string][]byte
		want map[string]string
	}{
		{name: "a Secret that is not filled yet writes nothing", want: map[string]string{}},
		{
			name: "a filled Secret writes the certificates and the key, but not the authority's key",
			data: map[string][]byte{"tls.crt": []byte("cert"), "tls.key": []byte("key"), "ca.crt": []byte("ca"), "ca.key": []byte("secret")},
			want: map[string]string{"tls.crt": "cert", "tls.key": "key", "ca.crt": "ca"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			w := &writer{client: fake.NewClientBuilder().WithObjects(secret(tc.data)).Build(), dir: dir}
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(secret(nil))}
			if _, err := w.Reconcile(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != len(tc.want) {
				t.Errorf("want %d files, got %v", len(tc.want), files)
			}
			for name, want := range tc.want {
				path := filepath.Join(dir, name)
				got, err := os.ReadFile(path)
				if err != nil || string(got) != want {
					t.Errorf("%s: want %q, got %q (%v)", name, want, got, err)
				}
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s is readable by others", name)
				}
			}
		})
	}
}

func TestTheSecretIsMadeOnceAndNeverEmptied(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	if err := ensureSecret(t.Context(), c, c, namespace); err != nil {
		t.Fatal(err)
	}
	made := secret(nil)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil {
		t.Fatal(err)
	}
	made.Data = map[string][]byte{"tls.crt": []byte("cert")}
	if err := c.Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if err := ensureSecret(t.Context(), c, c, namespace); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil || string(made.Data["tls.crt"]) != "cert" {
		t.Errorf("want the Secret as it was, got %v (%v)", made.Data, err)
	}
}
