// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Files of the webhook's certificate.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	// CAFile is the certificate of the authority that signs the webhook's. Without it replicas do not trust each other,
	// and each writes by itself.
	CAFile = "ca.crt"
)

// Identity is the webhook's certificate, by which replicas know each other. It is read anew for each connection, since
// it is renewed while the manager runs.
type Identity struct {
	// Dir holds the certificate, its key and its authority's certificate.
	Dir string
	// Name is the DNS name that the certificate is for.
	Name string
}

func (i Identity) authority() (*x509.CertPool, error) {
	pem, err := os.ReadFile(filepath.Join(i.Dir, CAFile))
	if err != nil {
		return nil, fmt.Errorf("reading the webhook's authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("the webhook's authority is no certificate")
	}
	return pool, nil
}

// client is how a replica connects to another.
func (i Identity) client() (*tls.Config, error) {
	pool, err := i.authority()
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(i.Dir, certFile), filepath.Join(i.Dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the webhook's certificate: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: i.Name, RootCAs: pool, Certificates: []tls.Certificate{own},
	}, nil
}

// knows says whether a connection comes from another replica.
func (i Identity) knows(state *tls.ConnectionState) error {
	if state == nil || len(state.PeerCertificates) == 0 {
		return errors.New("the caller shows no certificate")
	}
	pool, err := i.authority()
	if err != nil {
		return err
	}
	intermediates := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{
		DNSName: i.Name, Roots: pool, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("the caller is no replica: %w", err)
	}
	return nil
}
