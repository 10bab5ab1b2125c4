// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/mps"
)

// maxNames bounds the names in a message.
const maxNames = 8

// judge says what is wrong with a device, which processes are beside MPS as far as this look alone can tell, and how many of
// them were so at the look before, too.
func judge(d device, s sight, suspects []int) (found []Finding, again []int, bypassing int) {
	add := func(reason, format string, args ...any) {
		found = append(found, Finding{Device: d.uuid, Reason: reason, Message: d.name + ": " + fmt.Sprintf(format, args...)})
	}
	if len(s.marked) > 0 {
		add(v1alpha1.ReasonMPSDaemonEnded, "the MPS daemon has ended by itself and was started again; what ran then must be started "+
			"again to be held by the new one: %s", names(s.marked))
	}
	if s.away != nil {
		add(v1alpha1.ReasonMPSDaemonAway, "the MPS daemon does not answer, and what starts now runs without a limit: %v", s.away)
		return found, nil, 0
	}
	if len(s.state.Faulty) > 0 {
		add(v1alpha1.ReasonMPSFault, "a process has broken the MPS server; it takes new ones when the %d that it had are gone",
			len(s.state.Clients))
	}
	if len(s.state.Clients) >= mps.MaxClients {
		add(v1alpha1.ReasonMPSFull, "the MPS server has %d clients and takes no more", len(s.state.Clients))
	}
	if s.unknown {
		return found, suspects, 0
	}
	var beside []string
	for _, p := range s.processes {
		if slices.Contains(s.state.Clients, p.PID) || slices.Contains(s.state.Servers, p.PID) {
			continue
		}
		again = append(again, p.PID)
		if slices.Contains(suspects, p.PID) {
			beside = append(beside, p.Name)
		}
	}
	if len(beside) > 0 {
		add(v1alpha1.ReasonMPSBypassed, "processes are on the device that did not reach its MPS server, and run without its limits: %s",
			names(beside))
	}
	return found, again, len(beside)
}

// order is that of the reasons, the worst first.
var order = []string{
	v1alpha1.ReasonMPSDaemonAway, v1alpha1.ReasonMPSBypassed, v1alpha1.ReasonMPSFault, v1alpha1.ReasonMPSDaemonEnded,
	v1alpha1.ReasonMPSFull,
}

func worstFirst(a, b Finding) int {
	return cmp.Compare(slices.Index(order, a.Reason), slices.Index(order, b.Reason))
}

// names are the first of a list, in order, and how many more there are.
func names(list []string) string {
	list = slices.Clone(list)
	slices.Sort(list)
	list = slices.Compact(list)
	if more := len(list) - maxNames; more > 0 {
		list = append(list[:maxNames], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}
