// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"context"
	"errors"

	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// errLate says that NVML has not answered in time for a look.
var errLate = errors.New("NVML does not answer in time")

// answer is what NVML says of a device.
type answer struct {
	figures []nvml.Figure
	err     error
}

// asker asks NVML about all devices at once, and waits for none any longer than it has to: a call that hangs must not keep what
// happens on other GPUs from being found. A device is not asked again while a question about it is open.
type asker struct {
	open map[string]chan answer
}

// ask asks about devices, by the GPUs that they are of.
func (a *asker) ask(ctx context.Context, hardware Hardware, gpus map[string]string) map[string]answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	replies := make(map[string]chan answer, len(gpus))
	for device, gpu := range gpus {
		if !a.free(device) {
			continue
		}
		reply := make(chan answer, 1)
		a.open[device], replies[device] = reply, reply
		go func() {
			figures, err := hardware.Figures(ctx, gpu, device)
			reply <- answer{figures: figures, err: err}
		}()
	}
	answers := make(map[string]answer, len(gpus))
	for device := range gpus {
		answers[device] = answer{err: errLate}
		if got, there := inTime(ctx, replies[device]); there {
			answers[device] = got
			delete(a.open, device)
		}
	}
	return answers
}

// inTime waits for a reply until the context ends. One that is there by then counts: others have used up the time.
func inTime(ctx context.Context, reply <-chan answer) (answer, bool) {
	if reply == nil {
		return answer{}, false
	}
	select {
	case got := <-reply:
		return got, true
	case <-ctx.Done():
	}
	select {
	case got := <-reply:
		return got, true
	default:
		return answer{}, false
	}
}

// free is true where no question about a device is open. What is answered too late is of an earlier look.
func (a *asker) free(device string) bool {
	select {
	case <-a.open[device]:
		delete(a.open, device)
	default:
	}
	return a.open[device] == nil
}
