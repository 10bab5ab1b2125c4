// SPDX-License-Identifier: Apache-2.0

package violation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-gpu/sluice/internal/violation"
)

const (
	mebi = uint64(1) << 20
	gibi = uint64(1) << 30
)

var (
	a = violation.Share{ClaimUID: "a"}
	b = violation.Share{ClaimUID: "b"}
	c = violation.Share{ClaimUID: "c"}
)

func at(look int) time.Time { return time.Unix(int64(3*look), 0) }

func grant(s violation.Share, limit uint64) violation.Grant {
	return violation.Grant{Share: s, Device: "GPU-0", Limit: limit}
}

// process is one that the library knows.
func process(pid int, bytes uint64, shares ...violation.Share) violation.Process {
	return violation.Process{
		ID: violation.PID{PID: pid, Start: 1}, Device: "GPU-0", Name: fmt.Sprintf("p (%d)", pid), Bytes: bytes, Figure: true,
		Shares: shares, Registered: true, Pod: "pod-" + shares[0].ClaimUID,
	}
}

func past(p violation.Process) violation.Process {
	p.Registered = false
	return p
}

func silent(p violation.Process) violation.Process {
	p.Bytes, p.Figure = 0, false
	return p
}

func one(limit uint64, processes ...violation.Process) violation.Look {
	return violation.Look{Grants: []violation.Grant{grant(a, limit)}, Processes: processes}
}

// said is a look's findings in short.
func said(f violation.Findings) []string {
	list := []string{}
	for _, v := range f.Violations {
		var text strings.Builder
		fmt.Fprintf(&text, "%s %s held %d limit %d since %d", v.Share.ClaimUID, v.Reason, v.Held/mebi, v.Limit/mebi, v.Since.Unix()/3)
		for _, p := range v.Unregistered {
			text.WriteString(" past " + p.Name)
		}
		for _, p := range v.Offenders {
			fmt.Fprintf(&text, " end %d", p.ID.PID)
		}
		list = append(list, text.String())
	}
	for _, u := range f.Unverified {
		list = append(list, "unverified "+u.Share.ClaimUID+u.Why+" "+u.Process.Name)
	}
	return list
}

func run(looks []violation.Look) []string {
	var memory violation.Memory
	var found violation.Findings
	for i, l := range looks {
		memory, found = violation.Judge(memory, l, at(i))
	}
	return said(found)
}

func repeat(l violation.Look, times int) []violation.Look {
	return slices.Repeat([]violation.Look{l}, times)
}

func TestOneShare(t *testing.T) {
	within, above := one(2*gibi, process(1, 2*gibi, a)), one(2*gibi, process(1, 3*gibi, a))
	small := make([]violation.Process, 10)
	for i := range small {
		small[i] = past(process(i+1, 600*mebi, a))
	}
	tail := " past p (1) end 1"
	for _, tc := range []struct {
		name  string
		looks []violation.Look
		want  []string
	}{
		{"a share within its limit", repeat(within, 3), nil},
		{"one look above is nothing to tell of", []violation.Look{within, above}, nil},
		{"two looks above are", []violation.Look{within, above, above}, []string{"a OverLimit held 3072 limit 2048 since 2 end 1"}},
		{"it is known since when", repeat(above, 5), []string{"a OverLimit held 3072 limit 2048 since 1 end 1"}},
		{"above, within, above", []violation.Look{above, within, above}, nil},
		{"one look within does not end it, and ends nobody", []violation.Look{above, above, within}, []string{"a OverLimit held 3072 limit 2048 since 1"}},
		{"two looks within end it", []violation.Look{above, above, within, within}, nil},
		{
			"what a context costs more than it was charged is no violation",
			repeat(one(2*gibi, process(1, gibi+(64+20)*mebi, a), process(2, gibi+64*mebi, a)), 2), nil,
		},
		{
			"what many contexts cost more excuses a quarter of the limit at most",
			repeat(one(2*gibi, slices.Repeat([]violation.Process{process(1, 265*mebi, a)}, 10)...), 2),
			[]string{"a OverLimit held 2650 limit 2048 since 1 end 1 end 1 end 1 end 1 end 1 end 1 end 1 end 1 end 1 end 1"},
		},
		{"what is not charged at all is excused nothing but a fiftieth", repeat(one(2*gibi, past(process(1, 2*gibi+50*mebi, a))), 2), []string{"a OverLimit held 2098 limit 2048 since 1" + tail}},
		{"ten small processes count together", repeat(one(4*gibi, small...), 2), []string{
			"a OverLimit held 6000 limit 4096 since 1 past p (1) past p (2) past p (3) past p (4) past p (5) past p (6) past p (7) past p (8) " +
				"past p (9) past p (10) end 1 end 2 end 3 end 4 end 5 end 6 end 7 end 8 end 9 end 10",
		}},
		{"a limit that was lowered condemns nobody", []violation.Look{within, one(gibi, process(1, 2*gibi, a)), one(gibi, process(1, 2*gibi, a)), one(gibi, process(1, 2*gibi, a))}, nil},
		{
			"after it was within the lower limit, that one holds",
			[]violation.Look{within, one(gibi, process(1, 2*gibi, a)), one(gibi, process(1, gibi, a)), one(gibi, process(1, 2*gibi, a)), one(gibi, process(1, 2*gibi, a))},
			[]string{"a OverLimit held 2048 limit 1024 since 4 end 1"},
		},
		{"a limit that was raised holds at once", []violation.Look{above, above, one(4*gibi, process(1, 3*gibi, a)), one(4*gibi, process(1, 3*gibi, a))}, nil},
		{"a process past the library at one look", []violation.Look{within, one(2*gibi, past(process(1, gibi, a)))}, nil},
		{"a process past the library at two", repeat(one(2*gibi, past(process(1, gibi, a))), 2), []string{"a UnregisteredProcess held 1024 limit 2048 since 1" + tail}},
		{
			"those that the library knows beside it are left alone",
			repeat(one(2*gibi, past(process(1, gibi, a)), process(2, gibi/2, a)), 2), []string{"a UnregisteredProcess held 1536 limit 2048 since 1" + tail},
		},
		{"another process at the second look", []violation.Look{one(2*gibi, past(process(1, gibi, a))), one(2*gibi, past(process(2, gibi, a)))}, nil},
		{
			"ever other processes are found at the third",
			[]violation.Look{one(2*gibi, past(process(1, gibi, a))), one(2*gibi, past(process(2, gibi, a))), one(2*gibi, past(process(3, gibi, a)))},
			[]string{"a UnregisteredProcess held 1024 limit 2048 since 2 past p (3) end 3"},
		},
		{"no figure is not 0", repeat(one(2*gibi, silent(process(1, 0, a))), 2), []string{"unverified a p (1)"}},
		{"no figure at one look", []violation.Look{within, one(2*gibi, silent(process(1, 0, a)))}, nil},
		{"the others' figures count beside one without", repeat(one(2*gibi, silent(process(1, 0, a)), process(2, 3*gibi, a)), 2), []string{
			"a OverLimit held 3072 limit 2048 since 1 end 1 end 2", "unverified a p (1)",
		}},
		{"a process of no share is nobody's", repeat(violation.Look{
			Grants:    []violation.Grant{grant(a, gibi)},
			Processes: []violation.Process{{ID: violation.PID{PID: 9}, Device: "GPU-0", Bytes: 70 * gibi, Figure: true}},
		}, 3), nil},
		{"where nobody can say whether the library knows a process, nothing is said", func() []violation.Look {
			p := past(process(1, gibi, a))
			p.Unclear = true
			return repeat(one(2*gibi, p), 3)
		}(), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, run(tc.looks), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSeveralShares(t *testing.T) {
	two := []violation.Grant{grant(a, gibi), grant(b, gibi)}
	other := grant(b, gibi)
	other.Device = "GPU-1"
	for _, tc := range []struct {
		name      string
		grants    []violation.Grant
		processes []violation.Process
		want      []string
	}{
		{"shares of one device in a container add up", two, []violation.Process{process(1, 2*gibi, a, b)}, nil},
		{"and no more than that", two, []violation.Process{process(1, 3*gibi, a, b)}, []string{"a OverLimit held 3072 limit 2048 since 1 end 1"}},
		{"a neighbour has its own limit", two, []violation.Process{process(1, 2*gibi, a), process(2, gibi, b)}, []string{"a OverLimit held 2048 limit 1024 since 1 end 1"}},
		{
			"a container with one of them and one with both have their limits together",
			two, []violation.Process{process(1, gibi, a), process(2, 2*gibi, a, b)}, []string{"a OverLimit held 3072 limit 2048 since 1 end 1 end 2"},
		},
		{
			"containers that share in a chain are held together",
			[]violation.Grant{grant(a, gibi), grant(b, gibi), grant(c, gibi)},
			[]violation.Process{process(1, 2*gibi, a, b), process(2, 2*gibi, b, c)}, []string{"a OverLimit held 4096 limit 3072 since 1 end 1 end 2"},
		},
		{"the same process on two devices has two figures", []violation.Grant{grant(a, gibi), other}, []violation.Process{
			process(1, gibi, a), func() violation.Process { p := process(1, 2*gibi, b); p.Device = "GPU-1"; return p }(),
		}, []string{"b OverLimit held 2048 limit 1024 since 1 end 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := run(repeat(violation.Look{Grants: tc.grants, Processes: tc.processes}, 2))
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestADeviceThatIsNotToBeSeenKeepsWhatWasFound(t *testing.T) {
	above := one(2*gibi, process(1, 3*gibi, a))
	blind := violation.Look{Grants: above.Grants, Blind: map[string]string{"GPU-0": " NVML hangs"}}
	want := []string{"a OverLimit held 3072 limit 2048 since 1", "unverified a NVML hangs "}
	if diff := cmp.Diff(want, run([]violation.Look{above, above, blind, blind, blind})); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestAnotherAgentKnowsTheLimitsThatWereInForce(t *testing.T) {
	memory, _ := violation.Judge(violation.Memory{}, one(2*gibi, process(1, 2*gibi, a)), at(0))
	if len(memory.Highest()) != 0 {
		t.Errorf("a limit in force is none to remember: %v", memory.Highest())
	}
	lowered := one(gibi, process(1, 2*gibi, a))
	memory, _ = violation.Judge(memory, lowered, at(1))
	memory = violation.Remember(memory.Highest())
	var found violation.Findings
	for look := range 3 {
		memory, found = violation.Judge(memory, lowered, at(2+look))
	}
	if len(found.Violations) != 0 {
		t.Errorf("a lowered limit condemns under another agent: %v", said(found))
	}
}
