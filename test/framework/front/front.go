// SPDX-License-Identifier: Apache-2.0

// Package front stands before several replicas of the manager as a Service with many clients does: one address, requests
// spread over the replicas in turn, those that are gone left out. An API server keeps one connection to a webhook and
// sends everything through it, so what is spread here are requests, not connections.
package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// dialTimeout is how long a replica that does not answer is tried before the next one is.
const dialTimeout = time.Second

// Front listens until it is closed.
type Front struct {
	server   *http.Server
	replicas []string
	next     atomic.Uint64
	certDir  string
	carriers *http.Transport
}

// Listen serves on an address with the certificate that a replica keeps in a directory, and hands requests on to the
// addresses of the replicas. Until the certificate is there nobody is answered.
func Listen(ctx context.Context, address, certDir string, replicas []string) (*Front, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening before the managers: %w", err)
	}
	f := &Front{replicas: replicas, certDir: certDir}
	f.carriers = &http.Transport{DialTLSContext: f.dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
	quiet := log.New(io.Discard, "", 0) // a client that goes away in a handshake is none of the tests' business
	f.server = &http.Server{
		ReadHeaderTimeout: dialTimeout * 10, ErrorLog: quiet,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.certificate},
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: "replica"}) },
			Transport: f, ErrorLog: quiet,
		},
	}
	go func() { _ = f.server.ServeTLS(listener, "", "") }() // ends with Close
	return f, nil
}

// Close stops answering.
func (f *Front) Close() error {
	f.carriers.CloseIdleConnections()
	if err := f.server.Close(); err != nil {
		return fmt.Errorf("closing what stands before the managers: %w", err)
	}
	return nil
}

// RoundTrip hands a request to the next replica, and to the one after it where nobody listens.
func (f *Front) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	first := f.next.Add(1)
	var failed error
	for i := range uint64(len(f.replicas)) {
		attempt := request.Clone(request.Context())
		attempt.URL.Host = f.replicas[(first+i)%uint64(len(f.replicas))]
		attempt.Body = io.NopCloser(bytes.NewReader(body))
		response, err := f.carriers.RoundTrip(attempt)
		if err == nil {
			return response, nil
		}
		failed = errors.Join(failed, err)
		if op := (*net.OpError)(nil); !errors.As(err, &op) || op.Op != "dial" {
			break // it may have been heard: what it did is not done twice
		}
	}
	return nil, failed
}

// dial connects to a replica, which has the same certificate as every other.
func (f *Front) dial(ctx context.Context, network, address string) (net.Conn, error) {
	leaf, err := os.ReadFile(filepath.Join(f.certDir, "tls.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the managers' certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(leaf)
	dialer := &tls.Dialer{
		NetDialer: &net.Dialer{Timeout: dialTimeout},
		Config:    &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "localhost"},
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("reaching replica %s: %w", address, err)
	}
	return conn, nil
}

func (f *Front) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(f.certDir, "tls.crt"), filepath.Join(f.certDir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the managers' certificate: %w", err)
	}
	return &pair, nil
}
