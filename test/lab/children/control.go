// SPDX-License-Identifier: Apache-2.0

package children

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

// handler serves commands.
func (s *Set) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.statuses())
	})
	mux.HandleFunc("POST /start/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.start(r.PathValue("name")))
	})
	mux.HandleFunc("POST /kill/{name}", func(w http.ResponseWriter, r *http.Request) {
		sig, err := strconv.Atoi(r.URL.Query().Get("signal"))
		if err == nil {
			err = s.kill(r.PathValue("name"), syscall.Signal(sig))
		}
		answer(w, err)
	})
	return mux
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// Control speaks to a node's supervisor.
type Control struct{ client *http.Client }

// NewControl speaks through a socket.
func NewControl(socket string) Control {
	return Control{client: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// Status says how the processes are.
func (c Control) Status(ctx context.Context) (map[string]Status, error) {
	content, err := c.do(ctx, http.MethodGet, "/status")
	if err != nil {
		return nil, err
	}
	statuses := map[string]Status{}
	if err := json.Unmarshal(content, &statuses); err != nil {
		return nil, fmt.Errorf("reading the supervisor's answer: %w", err)
	}
	return statuses, nil
}

// Start starts a process unless it runs.
func (c Control) Start(ctx context.Context, name string) error {
	_, err := c.do(ctx, http.MethodPost, "/start/"+url.PathEscape(name))
	return err
}

// Kill sends a signal to a process and returns when it has ended; it stays ended.
func (c Control) Kill(ctx context.Context, name string, sig syscall.Signal) error {
	_, err := c.do(ctx, http.MethodPost, fmt.Sprintf("/kill/%s?signal=%d", url.PathEscape(name), sig))
	return err
}

func (c Control) do(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("making the supervisor's request: %w", err)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the node's supervisor: %w", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the supervisor's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(string(bytes.TrimSpace(content)))
	}
	return content, nil
}
