// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/sluice-gpu/sluice/node-agent/dra"
)

// Observer hears from the DRA server and makes the loop look sooner.
type Observer struct {
	Agent   *Agent
	Metrics *Metrics
	// Fatal ends the process in an orderly way.
	Fatal func(error)
}

var _ dra.Observer = &Observer{}

// Prepared counts a claim that was prepared, or was not.
func (o *Observer) Prepared(took time.Duration, err error) {
	o.Metrics.claim("prepare", took, err)
	o.Agent.Trigger()
}

// Unprepared counts a claim that was released, or was not.
func (o *Observer) Unprepared(took time.Duration, err error) {
	o.Metrics.claim("unprepare", took, err)
	o.Agent.Trigger()
}

// Registered asks for the slices again, which kubelet deletes when it starts.
func (o *Observer) Registered() {
	o.Agent.mu.Lock()
	o.Agent.republish = true
	o.Agent.mu.Unlock()
	o.Agent.Trigger()
}

// PublishFailed keeps the error for the status.
func (o *Observer) PublishFailed(err error) {
	o.Agent.setPublishError(err.Error())
	o.Agent.Trigger()
}

// ServerFailed ends the agent, which cannot do its work without being served.
func (o *Observer) ServerFailed(err error) { o.Fatal(err) }

func (a *Agent) setPublishError(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.publishError = text
}

func (a *Agent) lastPublishError() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.publishError
}
