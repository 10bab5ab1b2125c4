// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-gpu/sluice/test/lab/process"
)

const (
	// startTimeout is how long one component may take; two cores that also compile are slow.
	startTimeout = 2 * time.Minute
	tailLines    = 25
)

// start starts the component and waits until it is healthy; the state is saved in between, so that a starter that is
// killed leaves no process that nobody knows.
func (l *labRun) start(ctx context.Context, c *Component) error {
	if err := l.launch(c); err != nil {
		return err
	}
	return l.awaitHealth(ctx, c)
}

func (l *labRun) launch(c *Component) error {
	if c.Running() {
		return nil
	}
	path := c.Path
	if path == "" {
		path = filepath.Join(l.state.Binaries, c.Name)
	}
	p, err := process.Start(process.Spec{Path: path, Args: c.Args, Log: c.Log, Env: append(componentEnv(), c.Env...)})
	if err != nil {
		return fmt.Errorf("starting %s: %w", c.Name, err)
	}
	c.Process = &p.Identity
	l.children[c.Name] = p
	return l.dir.save(l.state)
}

// componentEnv is all the environment a component gets: proxies and kubeconfigs of the caller's must not reach it.
func componentEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "TMPDIR=" + os.TempDir()}
}

func (l *labRun) awaitHealth(ctx context.Context, c *Component) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ended := make(<-chan struct{})
	if child := l.children[c.Name]; child != nil {
		ended = child.Done()
	}
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	var last error
	for {
		if last = l.probeAll(ctx, c.Health, c.Works); last == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended while starting (%w); the end of %s:\n%s",
				c.Name, errors.Join(l.children[c.Name].Err(), last), c.Log, process.Tail(c.Log, tailLines))
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy (%w); the end of %s:\n%s", c.Name, last, c.Log, process.Tail(c.Log, tailLines))
		case <-retry.C:
		}
	}
}

// probeAll asks the URLs that there are.
func (l *labRun) probeAll(ctx context.Context, urls ...string) error {
	for _, url := range urls {
		if url == "" {
			continue
		}
		if err := l.probe(ctx, url); err != nil {
			return err
		}
	}
	return nil
}

// probe asks a health URL once.
func (l *labRun) probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("making the health request: %w", err)
	}
	response, err := l.client.Do(request)
	if err != nil {
		return fmt.Errorf("asking for health: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// healthClient trusts the lab's authority alone and speaks as the administrator. Connections are not kept: a component
// that is stopped and started again must be asked anew.
func healthClient(dir Dir) (*http.Client, error) {
	ca, err := os.ReadFile(filepath.Join(dir.Certs(), "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the lab's authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the lab's authority file holds no certificate")
	}
	admin, err := tls.LoadX509KeyPair(filepath.Join(dir.Certs(), AdminName+".crt"), filepath.Join(dir.Certs(), AdminName+".key"))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin}, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}}, nil
}
