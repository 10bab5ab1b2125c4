// SPDX-License-Identifier: Apache-2.0

// Package relay carries connections between the API server on the host's loopback and machines, whose networks are their
// own: over unix sockets, which no network namespace bounds. Nothing of the host's network is changed for it.
package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
)

// Serve accepts connections until the context ends and gives each to handle, which closes it.
func Serve(ctx context.Context, listener net.Listener, handle func(net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting on %s: %w", listener.Addr(), err)
		}
		go handle(conn)
	}
}

// Listen makes a unix socket in the place of one that an earlier process left.
func Listen(path string) (net.Listener, error) {
	const longest = 107
	if len(path) > longest {
		return nil, fmt.Errorf("the socket's path %s has more than the %d bytes that it may have: use a shorter directory", path, longest)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return listener, nil
}

// Forward carries every connection to one address.
func Forward(network, address string) func(net.Conn) {
	return func(from net.Conn) {
		defer from.Close()
		to, err := net.Dial(network, address)
		if err != nil {
			return // the caller sees its connection end, as with a server that is away
		}
		defer to.Close()
		join(from, from, to)
	}
}

// Choose answers CONNECT requests by handing the connection to the unix socket that find names for the address asked for.
func Choose(find func(netip.Addr) (string, error)) func(net.Conn) {
	return func(from net.Conn) {
		defer from.Close()
		reader := bufio.NewReader(from)
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		to, err := open(request, find)
		if err != nil {
			refuse(from, err)
			return
		}
		defer to.Close()
		if _, err := fmt.Fprintf(to, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", request.Host, request.Host); err != nil {
			return
		}
		join(from, reader, to)
	}
}

func open(request *http.Request, find func(netip.Addr) (string, error)) (net.Conn, error) {
	if request.Method != http.MethodConnect {
		return nil, fmt.Errorf("only CONNECT is served, not %s", request.Method)
	}
	target, err := netip.ParseAddrPort(request.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the address asked for: %w", err)
	}
	socket, err := find(target.Addr())
	if err != nil {
		return nil, err
	}
	to, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("reaching the machine of %s: %w", target, err)
	}
	return to, nil
}

// Connect answers CONNECT requests with a connection made from where this process is.
func Connect(from net.Conn) {
	defer from.Close()
	reader := bufio.NewReader(from)
	request, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	to, err := net.Dial("tcp", request.Host)
	if err != nil {
		refuse(from, err)
		return
	}
	defer to.Close()
	if _, err := io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	join(from, reader, to)
}

func refuse(conn net.Conn, err error) {
	why := strings.NewReplacer("\r", " ", "\n", " ").Replace(err.Error())
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 502 %s\r\nContent-Length: 0\r\n\r\n", why)
}

// join copies both ways until both ends have said all; reader holds what was already read of a.
func join(a net.Conn, reader io.Reader, b net.Conn) {
	var both sync.WaitGroup
	both.Go(func() { carry(b, reader) })
	both.Go(func() { carry(a, b) })
	both.Wait()
}

func carry(to net.Conn, from io.Reader) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
}
