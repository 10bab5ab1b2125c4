// SPDX-License-Identifier: Apache-2.0

// Package contexts decides what a CUDA context costs. It cannot be measured from inside a process, so the node compares
// what the driver says a process holds with what the process's ledger says: what is left is its context. One look proves
// little, and ledgers are written by tenants, so a figure needs witnesses.
package contexts

import "github.com/sluice-gpu/sluice/internal/shares"

const (
	// least and most bound what is believed of one context.
	least = 64 << 20
	most  = 4 << 30
	// grain is what figures are rounded up to: the driver hands out memory by such pages, and a ledger counts small
	// blocks by a model of them.
	grain = 2 << 20
	// maxOverhead bounds what a share's contexts are charged beyond the figure.
	maxOverhead = 256 << 20
	// room is what a process needs beside its context to be of use.
	room = shares.MinMemoryBytes - shares.ContextBytes
	// patience is how many looks in a row make a single process a witness.
	patience = 3
)

// Key is what a context's cost depends on.
type Key struct {
	Product, Driver string
	// Profile is the MIG instance's; "" for a whole GPU.
	Profile string
	// Mode is the sharing mode.
	Mode string
}

// Share names a share.
type Share struct {
	ClaimUID string
	Index    int
}

// Process names a process that keeps a ledger. A stamp is never used twice in a share.
type Process struct {
	Share Share
	Stamp uint64
}

// Sight is one process at one look.
type Sight struct {
	Process Process
	Key     Key
	// Limit, Context and Overhead are the words of the share's limits.
	Limit, Context, Overhead uint64
	// Held is what the process's ledger says it holds, contexts included.
	Held uint64
	// Driver is what the driver says it holds; 0 where it has no figure.
	Driver uint64
	// Mixed is true where the two cannot be compared: the process shares memory with others, or draws on several shares.
	Mixed bool
}

// Witness is what is remembered of a process from one look to the next.
type Witness struct {
	// Charge is what its context was charged; 0 until it has one.
	Charge uint64
	// Figure is what its context costs by the last look, 0 unknown, and Looks how often in a row that was so.
	Figure uint64
	Looks  int
}

// Memory is what is remembered from one look to the next. The zero value has seen nothing.
type Memory struct {
	witnesses map[Process]Witness
	// begun is false until the first look: what is there already was begun under words that nobody remembers.
	begun bool
}

// Findings are what a look adds to what is known.
type Findings struct {
	// Figures are those that are new or larger than before.
	Figures map[Key]uint64
	// Overheads are the words to be raised.
	Overheads map[Share]uint64
}

// Look judges one look at all processes, given the figures that are known already.
func Look(before Memory, known map[Key]uint64, sights []Sight) (Memory, Findings) {
	after := Memory{witnesses: make(map[Process]Witness, len(sights)), begun: true}
	for _, s := range sights {
		after.witnesses[s.Process] = witness(before, s)
	}
	return after, Findings{Figures: figures(after, known, sights), Overheads: overheads(before, after, sights)}
}

// witness is what a process says at this look.
func witness(before Memory, s Sight) Witness {
	old, seen := before.witnesses[s.Process]
	charge := old.Charge
	switch {
	case s.Held < s.Context:
		return Witness{} // it has no context yet
	case charge == 0 && (seen || before.begun):
		charge = s.Context + s.Overhead
	case charge == 0:
		charge = s.Context
	}
	w := Witness{Charge: charge}
	if s.Mixed || s.Driver == 0 || s.Held < charge {
		return w
	}
	figure := round(s.Driver + charge - min(s.Held, s.Driver+charge))
	if figure < least || figure > most {
		return w
	}
	w.Figure, w.Looks = figure, 1
	if old.Figure == figure {
		w.Looks = old.Looks + 1
	}
	return w
}

func round(bytes uint64) uint64 { return (bytes + grain - 1) / grain * grain }

// testimony is who says one figure.
type testimony struct {
	processes, looks int
	claims           map[string]bool
}

// figures are the largest that are well attested: by two processes, or by one that keeps saying so. The largest, since a
// context that is charged too little lets its share take what is another's. What is above the figure for a context that
// nobody has measured takes two claims: a single tenant could say it to crowd the others out.
func figures(now Memory, known map[Key]uint64, sights []Sight) map[Key]uint64 {
	said := map[Key]map[uint64]*testimony{}
	for _, s := range sights {
		w := now.witnesses[s.Process]
		if w.Figure == 0 {
			continue
		}
		if said[s.Key] == nil {
			said[s.Key] = map[uint64]*testimony{}
		}
		t := said[s.Key][w.Figure]
		if t == nil {
			t = &testimony{claims: map[string]bool{}}
			said[s.Key][w.Figure] = t
		}
		t.processes++
		t.looks = max(t.looks, w.Looks)
		t.claims[s.Process.Share.ClaimUID] = true
	}
	found := map[Key]uint64{}
	for key, figures := range said {
		for figure, t := range figures {
			attested := t.processes >= 2 || t.looks >= patience
			if attested && figure > max(known[key], found[key]) && (figure <= shares.ContextBytes || len(t.claims) >= 2) {
				found[key] = figure
			}
		}
	}
	return found
}

// overheads are what contexts that are still to be made in a share have to be charged beyond its figure, because those that
// were made cost more. A share's word is only ever raised, and a process is believed what it says at two looks in a row.
func overheads(before, now Memory, sights []Sight) map[Share]uint64 {
	raised := map[Share]uint64{}
	for _, s := range sights {
		w, old := now.witnesses[s.Process], before.witnesses[s.Process]
		figure := min(w.Figure, old.Figure)
		if figure <= s.Context {
			continue
		}
		over := min(figure-s.Context, maxOverhead)
		if s.Limit < s.Context+room {
			continue
		}
		over = min(over, s.Limit-s.Context-room)
		if over > max(s.Overhead, raised[s.Process.Share]) {
			raised[s.Process.Share] = over
		}
	}
	return raised
}

// Charge is what a context of a new share of so many bytes is charged, where a figure is known; 0 means none is. A share that
// was admitted leaves a process something beside a context, whatever was measured since.
func Charge(figure uint64, limit uint64) uint64 {
	if figure == 0 {
		return shares.ContextBytes
	}
	if limit < shares.MinMemoryBytes {
		return min(figure, shares.ContextBytes)
	}
	return min(figure, limit-room)
}

// Believable is true of a figure that a look can have found.
func Believable(figure uint64) bool { return figure >= least && figure <= most }
