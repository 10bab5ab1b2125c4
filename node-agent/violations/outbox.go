// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// letters is how many events wait for an API server that is slow.
const letters = 256

var errFull = errors.New("too many events wait to be written")

// Outbox writes events beside those who tell them, whom an API server that is slow or away must not hold up.
type Outbox struct {
	teller Teller
	log    logr.Logger
	queue  chan letter
}

type letter struct {
	namespace                  string
	pod                        checkpoint.Pod
	eventType, reason, message string
}

// NewOutbox makes an outbox. Nothing is written before it runs.
func NewOutbox(teller Teller, log logr.Logger) *Outbox {
	return &Outbox{teller: teller, log: log, queue: make(chan letter, letters)}
}

// Tell takes an event and returns at once.
func (o *Outbox) Tell(_ context.Context, namespace string, pod checkpoint.Pod, eventType, reason, message string) error {
	select {
	case o.queue <- letter{namespace: namespace, pod: pod, eventType: eventType, reason: reason, message: message}:
		return nil
	default:
		return errFull
	}
}

// Run writes what is told until the context ends.
func (o *Outbox) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-o.queue:
			if err := o.teller.Tell(ctx, l.namespace, l.pod, l.eventType, l.reason, l.message); err != nil && ctx.Err() == nil {
				o.log.Info("A pod is not told about its share", "pod", l.namespace+"/"+l.pod.Name, "err", err.Error())
			}
		}
	}
}
