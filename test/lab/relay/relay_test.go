// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

// serve serves connections at a socket until the test ends.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- Serve(t.Context(), listener, handle) }()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return path
}

// echo answers one line on a TCP port of loopback.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- Serve(t.Context(), listener, func(conn net.Conn) {
			defer conn.Close()
			line, _ := bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, "heard "+line)
		})
	}()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func TestForwardCarriesBothWays(t *testing.T) {
	conn, err := net.Dial("unix", serve(t, Forward("tcp", echo(t))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "heard hello\n" {
		t.Errorf("the answer is %q, %v", got, err)
	}
}

func TestChooseLeadsToTheMachineOfTheAddress(t *testing.T) {
	target := echo(t)
	inside := serve(t, Connect)
	entry := serve(t, Choose(func(address netip.Addr) (string, error) {
		if address.IsLoopback() {
			return inside, nil
		}
		return "", errors.New("no machine has it")
	}))
	for _, tc := range []struct {
		name, host string
		want       int
	}{
		{name: "an address of a machine is reached", host: target, want: http.StatusOK},
		{name: "an address of nobody is refused", host: "192.0.2.1:443", want: http.StatusBadGateway},
		{name: "a name is refused", host: "example.org:443", want: http.StatusBadGateway},
		{name: "an address that nobody listens at is refused", host: "127.0.0.1:1", want: http.StatusBadGateway},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, err := net.Dial("unix", entry)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// What the caller says at once, before the answer, must not be lost.
			if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\nhello\n", tc.host, tc.host); err != nil {
				t.Fatal(err)
			}
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != tc.want {
				t.Fatalf("the answer is %s, want %d", response.Status, tc.want)
			}
			if tc.want != http.StatusOK {
				return
			}
			if got, err := io.ReadAll(reader); err != nil || string(got) != "heard hello\n" {
				t.Errorf("the answer is %q, %v", got, err)
			}
		})
	}
}

func TestALongPathIsRefused(t *testing.T) {
	if _, err := Listen("/" + strings.Repeat("x", 120)); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("Listen = %v, want it to say what to do", err)
	}
}
