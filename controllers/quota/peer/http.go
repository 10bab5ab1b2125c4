// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/sluice-gpu/sluice/controllers/quota/ledger"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// Path is where the leader takes charges, on the webhook's server.
const Path = "/charge"

const (
	// connectIn is how long a connection may take: replicas are near each other.
	connectIn = time.Second
	// idleFor keeps connections between bursts.
	idleFor = time.Minute
	// connections are how many may be kept.
	connections = 64
	// longest is the longest message.
	longest = 1 << 20
)

// charge is what is sent to the leader.
type charge struct {
	Ledger string    `json:"ledger"`
	Ask    quota.Ask `json:"ask"`
}

// verdict is what comes back.
type verdict struct {
	Refusal *quota.Refusal `json:"refusal,omitempty"`
}

// Client sends charges to the leader.
type Client struct {
	address func(context.Context) (string, error)
	http    *http.Client
}

var _ Charger = &Client{}

// NewClient makes a client. address is the leader's, host and port.
func NewClient(identity Identity, address func(context.Context) (string, error)) *Client {
	dial := func(ctx context.Context, network, to string) (net.Conn, error) {
		config, err := identity.client()
		if err != nil {
			return nil, err
		}
		dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: connectIn}, Config: config}
		return dialer.DialContext(ctx, network, to) //nolint:wrapcheck // the caller says what was done
	}
	return &Client{address: address, http: &http.Client{Transport: &http.Transport{
		DialTLSContext: dial, MaxIdleConnsPerHost: connections, IdleConnTimeout: idleFor,
	}}}
}

// Charge has the leader charge.
func (c *Client) Charge(ctx context.Context, name string, ask quota.Ask) error {
	address, err := c.address(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(charge{Ledger: name, Ask: ask})
	if err != nil {
		return fmt.Errorf("encoding a charge: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+Path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("addressing the leader: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("asking the leader: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, longest))
	if err != nil {
		return fmt.Errorf("reading the leader's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the leader answers %s: %w", response.Status, ledger.ErrTryAgain)
	}
	var v verdict
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("decoding the leader's answer: %w", err)
	}
	if v.Refusal != nil {
		return v.Refusal
	}
	return nil
}

// There says whether a leader answers.
func (c *Client) There(ctx context.Context) bool {
	address, err := c.address(ctx)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, connectIn)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+Path, http.NoBody)
	if err != nil {
		return false
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusNoContent
}

// Handler takes charges of other replicas.
type Handler struct {
	// Identity is who may charge.
	Identity Identity
	// Leads says whether this replica writes for all.
	Leads func() bool
	// Own writes ledgers.
	Own Charger
}

var _ http.Handler = &Handler{}

// ServeHTTP carries out a charge.
func (h *Handler) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if err := h.Identity.knows(request.TLS); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if !h.Leads() {
		http.Error(w, "this replica does not write for others", http.StatusServiceUnavailable)
		return
	}
	if request.Method == http.MethodGet { // whether it is there
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var c charge
	if err := json.NewDecoder(http.MaxBytesReader(w, request.Body, longest)).Decode(&c); err != nil {
		http.Error(w, "decoding the charge: "+err.Error(), http.StatusBadRequest)
		return
	}
	var v verdict
	err := h.Own.Charge(request.Context(), c.Ledger, c.Ask)
	if err != nil && !errors.As(err, &v.Refusal) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
