// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// maxAsking bounds the questions that are answered at a time; further ones wait in the socket's queue.
const maxAsking = 64

// maxRefusal bounds a refusal, so that the answer stays one line that is read.
const maxRefusal = 1024

// Judge says whether a container may start, and does what is to be done before. An error is the reason why it may not.
type Judge interface {
	Admit(ctx context.Context, q Question) error
}

// Server answers.
type Server struct {
	listener *net.UnixListener
	judge    Judge
	log      logr.Logger
	asking   sync.WaitGroup
	places   chan struct{}
}

// Listen makes the socket and puts it in the place of another agent's, which goes on with those who have reached it.
func Listen(path string, judge Judge, log logr.Logger) (*Server, error) {
	temporary := path + "." + strconv.Itoa(os.Getpid())
	// What a killed agent with this PID has left.
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("clearing the way for the hook's socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("making the hook's socket: %w", err)
	}
	// By then the name can be another agent's.
	listener.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(temporary, 0o600), os.Rename(temporary, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("placing the hook's socket: %w", err), listener.Close())
	}
	return &Server{listener: listener, judge: judge, log: log, places: make(chan struct{}, maxAsking)}, nil
}

// Run answers until the context ends, and then those who have asked by then.
func (s *Server) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer stop()
	defer s.asking.Wait()
	for {
		s.places <- struct{}{}
		conn, err := s.listener.AcceptUnix()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			<-s.places
			s.log.Error(err, "A container's start could not be answered")
			if !sleep(ctx, retryTime) { // out of descriptors, most likely
				return
			}
			continue
		}
		s.asking.Go(func() {
			defer func() { <-s.places }()
			s.answer(context.WithoutCancel(ctx), conn)
		})
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// answer answers one question.
func (s *Server) answer(ctx context.Context, conn *net.UnixConn) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	defer conn.Close() //nolint:errcheck // whoever asks notices
	if deadline, bounded := ctx.Deadline(); bounded {
		if err := conn.SetDeadline(deadline); err != nil {
			return
		}
	}
	if err := trusted(conn); err != nil {
		s.log.Info("Somebody else than root asks whether a container may start", "err", err.Error())
		return
	}
	var q Question
	err := readLine(conn, &q)
	if err == nil {
		err = q.check()
	}
	if err == nil {
		err = s.judge.Admit(ctx, q)
	}
	a := answer{}
	if err != nil {
		s.log.Info("A container may not start", "pid", q.PID, "claim", q.Claim, "result", q.Result, "reason", err.Error())
		a.Refusal = err.Error()[:min(len(err.Error()), maxRefusal)]
	}
	if err := writeLine(conn, a); err != nil {
		s.log.Info("Nobody waits for the answer any more", "pid", q.PID, "err", err.Error())
	}
}

// trusted refuses who is not root on the node.
func trusted(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("looking at who asks: %w", err)
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return fmt.Errorf("looking at who asks: %w", err)
	}
	if peerErr != nil {
		return fmt.Errorf("finding out who asks: %w", peerErr)
	}
	if peer.Uid != 0 {
		return fmt.Errorf("user %d, process %d", peer.Uid, peer.Pid)
	}
	return nil
}
