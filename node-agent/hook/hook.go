// SPDX-License-Identifier: Apache-2.0

// Package hook is the question whether a container may start: a program that the container runtime runs once the container
// has its cgroup and before its process begins asks the agent, on a socket that only root reaches. The question and the answer
// are one line of JSON each.
package hook

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/sluice-gpu/sluice/internal/claimuid"
)

// SocketFile is the name of the socket in the directory of the shares.
const SocketFile = "hook.sock"

// AskTime is how long a container's start waits for an answer; answerTime is how long the agent takes for one at most.
const (
	AskTime    = 5 * time.Second
	answerTime = 4 * time.Second
	retryTime  = 50 * time.Millisecond
)

// maxLine bounds the question and the answer, in bytes. maxResult is the largest index of a claim's result.
const (
	maxLine   = 4096
	maxResult = 255
)

var (
	// ErrBadQuestion says that a question cannot be understood.
	ErrBadQuestion = errors.New("the question is not valid")
	// ErrNoAnswer says that the agent has not answered in time.
	ErrNoAnswer = errors.New("the node agent does not answer")
	// ErrRefused is the agent's refusal; the message has its reason.
	ErrRefused = errors.New("the container may not start")
)

// Question is one for a container and a share that it is to have.
type Question struct {
	// PID is that of the container's first process, as the node knows it.
	PID int `json:"pid"`
	// Claim is the UID of the share's claim, Result the place of its result in the claim's allocation.
	Claim  string `json:"claim"`
	Result int    `json:"result"`
}

// answer is what the agent says.
type answer struct {
	// Refusal is why the container may not start; "" where it may.
	Refusal string `json:"refusal"`
}

func (q Question) check() error {
	switch {
	case q.PID <= 0:
		return fmt.Errorf("PID %d: %w", q.PID, ErrBadQuestion)
	case q.Result < 0 || q.Result > maxResult:
		return fmt.Errorf("result %d: %w", q.Result, ErrBadQuestion)
	}
	if err := claimuid.Validate(q.Claim); err != nil {
		return fmt.Errorf("claim: %w: %w", ErrBadQuestion, err)
	}
	return nil
}

// Ask asks until there is an answer or the context ends: an agent that is being replaced is away for a moment. It returns nil
// where the container may start.
func Ask(ctx context.Context, socket string, q Question) error {
	if err := q.check(); err != nil {
		return err
	}
	retry := time.NewTicker(retryTime)
	defer retry.Stop()
	for {
		refusal, err := askOnce(ctx, socket, q)
		switch {
		case err == nil && refusal == "":
			return nil
		case err == nil:
			return fmt.Errorf("%w: %s", ErrRefused, refusal)
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
	}
}

func askOnce(ctx context.Context, socket string, q Question) (refusal string, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", fmt.Errorf("reaching it: %w", err)
	}
	defer conn.Close()
	if deadline, bounded := ctx.Deadline(); bounded {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", fmt.Errorf("bounding the wait: %w", err)
		}
	}
	if err := writeLine(conn, q); err != nil {
		return "", fmt.Errorf("asking: %w", err)
	}
	var a answer
	if err := readLine(conn, &a); err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	return a.Refusal, nil
}

func writeLine(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if _, err := w.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func readLine(r io.Reader, v any) error {
	line, err := bufio.NewReaderSize(io.LimitReader(r, maxLine), maxLine).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading a line of at most %d bytes: %w", maxLine, err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	return nil
}
