// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIssuedCertificatesAreTrusted(t *testing.T) {
	now := time.Now()
	made, err := NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := made.Pair.Write(dir, "ca"); err != nil {
		t.Fatal(err)
	}
	pair, err := Read(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := Load(pair, now)
	if err != nil {
		t.Fatal(err)
	}
	client, err := authority.Client("system:node:n1", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	server, err := authority.Server("kube-apiserver", "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(made.Pair.Cert)
	for _, tc := range []struct {
		name string
		pair Pair
		opts x509.VerifyOptions
	}{
		{name: "a client's certificate is one for clients", pair: client, opts: x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}},
		{name: "a server's certificate holds its extra name", pair: server, opts: x509.VerifyOptions{DNSName: "kubernetes"}},
		{name: "a server's certificate holds loopback", pair: server, opts: x509.VerifyOptions{DNSName: "127.0.0.1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.opts.Roots = roots
			if _, err := parse(t, tc.pair).Verify(tc.opts); err != nil {
				t.Error(err)
			}
		})
	}
	subject := parse(t, client).Subject
	if subject.CommonName != "system:node:n1" {
		t.Errorf("the user is %q", subject.CommonName)
	}
	if diff := cmp.Diff([]string{"system:nodes"}, subject.Organization); diff != "" {
		t.Errorf("the groups differ (-want +got):\n%s", diff)
	}
}

func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
