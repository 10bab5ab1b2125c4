// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/controllers/quota/ledger"
	"github.com/sluice-gpu/sluice/controllers/quota/peer"
	"github.com/sluice-gpu/sluice/internal/quota"
)

const service = "sluice-webhook.sluice-system.svc"

// fakeCharger answers with what it is given, one after another, and remembers what was asked.
type fakeCharger struct {
	answers []error
	asked   []quota.Ask
}

var _ peer.Charger = &fakeCharger{}

func (f *fakeCharger) Charge(_ context.Context, _ string, ask quota.Ask) error {
	f.asked = append(f.asked, ask)
	if len(f.answers) == 0 {
		return nil
	}
	answer := f.answers[0]
	f.answers = f.answers[1:]
	return answer
}

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{certificate: certificate, key: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// identity writes a certificate for a name, with the authority's beside it.
func (a authority) identity(t *testing.T, name string, usages ...x509.ExtKeyUsage) peer.Identity {
	t.Helper()
	dir := t.TempDir()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: usages,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"tls.crt":   {Type: "CERTIFICATE", Bytes: der},
		"tls.key":   {Type: "EC PRIVATE KEY", Bytes: encoded},
		peer.CAFile: {Type: "CERTIFICATE", Bytes: a.certificate.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return peer.Identity{Dir: dir, Name: service}
}

// serve serves a leader's charges and returns its address.
func serve(t *testing.T, identity peer.Identity, handler *peer.Handler) string {
	t.Helper()
	handler.Identity = identity
	own, err := tls.LoadX509KeyPair(filepath.Join(identity.Dir, "tls.crt"), filepath.Join(identity.Dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{own}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "https://")
}

func both() []x509.ExtKeyUsage {
	return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
}

func at(address string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return address, nil }
}

func TestTheLeaderCharges(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	leader := ca.identity(t, service, both()...)
	full := &quota.Refusal{Reason: quota.RefusedHard, Namespace: "a", Quota: "q", Resource: "gpus", Asked: 1, Sentence: "full"}
	ask := quota.Ask{
		UID: "u", Namespace: "a", Name: "c", Version: "7", Since: time.Unix(100, 0).UTC(), Charges: quota.Charges{"p": {"gpus": 1}},
	}
	for _, tc := range []struct {
		name     string
		identity peer.Identity
		follows  bool
		answer   error
		refusal  *quota.Refusal
		err      string
	}{
		{name: "what fits", identity: ca.identity(t, service, both()...)},
		{name: "what does not", identity: ca.identity(t, service, both()...), answer: full, refusal: full},
		{name: "what cannot be decided", identity: ca.identity(t, service, both()...), answer: errors.New("no"), err: "503"},
		{name: "not where it leads no more", identity: ca.identity(t, service, both()...), follows: true, err: "503"},
		{name: "not for a certificate of another name", identity: ca.identity(t, "other.svc", both()...), err: "403"},
		{name: "not for a certificate that is for servers only", identity: ca.identity(t, service, x509.ExtKeyUsageServerAuth), err: "403"},
		{name: "not for a stranger, who does not trust it either", identity: stranger.identity(t, service, both()...), err: "unknown authority"},
		{name: "not for a replica without the authority's certificate", identity: peer.Identity{Dir: t.TempDir(), Name: service}, err: "ca.crt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			own := &fakeCharger{answers: []error{tc.answer}}
			address := serve(t, leader, &peer.Handler{Leads: func() bool { return !tc.follows }, Own: own})
			err := peer.NewClient(tc.identity, at(address)).Charge(t.Context(), "namespace-a", ask)
			var refusal *quota.Refusal
			switch {
			case tc.err != "":
				if err == nil || !strings.Contains(err.Error(), tc.err) || errors.As(err, &refusal) {
					t.Errorf("got %v, want an error with %q", err, tc.err)
				}
				return
			case tc.refusal != nil:
				if !errors.As(err, &refusal) {
					t.Fatalf("got %v, want a refusal", err)
				}
			case err != nil:
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.refusal, refusal); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]quota.Ask{ask}, own.asked); diff != "" {
				t.Errorf("charged (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhetherALeaderIsThere(t *testing.T) {
	ca := newAuthority(t)
	leader := ca.identity(t, service, both()...)
	for _, tc := range []struct {
		name  string
		leads bool
		gone  bool
		want  bool
	}{
		{name: "one that answers is", leads: true, want: true},
		{name: "one that leads no more is not"},
		{name: "one that has published no address is not", leads: true, gone: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			own := &fakeCharger{}
			address := at(serve(t, leader, &peer.Handler{Leads: func() bool { return tc.leads }, Own: own}))
			if tc.gone {
				address = func(context.Context) (string, error) { return "", errors.New("nobody") }
			}
			if got := peer.NewClient(ca.identity(t, service, both()...), address).There(t.Context()); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if len(own.asked) > 0 {
				t.Error("it was charged")
			}
		})
	}
}

func TestACallerWithoutACertificateIsRefused(t *testing.T) {
	ca := newAuthority(t)
	leader := ca.identity(t, service, both()...)
	own := &fakeCharger{}
	address := serve(t, leader, &peer.Handler{Leads: func() bool { return true }, Own: own})
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)
	conn, err := tls.Dial("tcp", address, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: service})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("POST /charge HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 12)
	if _, err := conn.Read(answer); err != nil || string(answer) != "HTTP/1.1 403" {
		t.Errorf("answered %q, %v", answer, err)
	}
	if len(own.asked) > 0 {
		t.Error("it was charged")
	}
}

func TestWhoCharges(t *testing.T) {
	refusal := &quota.Refusal{Reason: quota.RefusedHard, Sentence: "full"}
	uncounted := &quota.Refusal{Reason: quota.RefusedUncounted, Sentence: "being counted"}
	for _, tc := range []struct {
		name                string
		leads               bool
		leader, own         []error
		want                error
		askedLeader, askOwn int
	}{
		{name: "the leader itself", leads: true, askOwn: 1},
		{name: "a follower asks the leader", askedLeader: 1},
		{name: "what the leader refuses is refused", leader: []error{refusal}, want: refusal, askedLeader: 1},
		{name: "a follower of a leader that is gone charges", leader: []error{errors.New("refused")}, askedLeader: 1, askOwn: 1},
		{
			name: "where somebody else writes all the time, that is the leader", leader: []error{errors.New("slow")},
			own: []error{ledger.ErrContended}, askedLeader: 2, askOwn: 1,
		},
		{name: "a namespace that is just being counted is waited for", leads: true, own: []error{uncounted, uncounted}, askOwn: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leader, own := &fakeCharger{answers: tc.leader}, &fakeCharger{answers: tc.own}
			front := &peer.Front{Leads: func() bool { return tc.leads }, Own: own, Leader: leader, Clock: clock.RealClock{}}
			if err := front.Charge(t.Context(), "l", quota.Ask{UID: "u"}); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if len(leader.asked) != tc.askedLeader || len(own.asked) != tc.askOwn {
				t.Errorf("the leader was asked %d times, this replica %d times, want %d and %d",
					len(leader.asked), len(own.asked), tc.askedLeader, tc.askOwn)
			}
		})
	}
}

func TestALeaderThatDoesNotAnswerIsLeftAlone(t *testing.T) {
	leader, own := &fakeCharger{answers: []error{errors.New("gone"), errors.New("gone")}}, &fakeCharger{}
	front := &peer.Front{Leads: func() bool { return false }, Own: own, Leader: leader, Clock: clock.RealClock{}}
	for range 3 {
		if err := front.Charge(t.Context(), "l", quota.Ask{UID: "u"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(leader.asked) != 1 || len(own.asked) != 3 {
		t.Errorf("the leader was asked %d times, this replica %d times, want 1 and 3", len(leader.asked), len(own.asked))
	}
}
