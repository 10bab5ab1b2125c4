// SPDX-License-Identifier: Apache-2.0

package layout

import "github.com/sluice-gpu/sluice/internal/gpu"

// Room is how many more instances of a profile a GPU can hold.
type Room struct {
	Profile string
	// Now is how many fit beside what is allocated, AfterDrain how many would if that were placed anew.
	Now, AfterDrain int
}

// Rooms says for each profile of a board how many more instances fit beside the allocated ones, small profiles first. Where
// the board does not know an allocated instance, nobody knows what fits beside it: then nothing does.
func Rooms(board Board, allocated []gpu.Placement) []Room {
	r := rulesOf(board)
	rooms := make([]Room, 0, len(r.profiles))
	taken, counts, sound := r.taken(allocated)
	for profile := len(r.profiles) - 1; profile >= 0; profile-- {
		room := Room{Profile: r.profiles[profile].Name}
		if sound {
			room.Now = r.more(taken, counts, profile)
			room.AfterDrain = r.more(r.empty(), counts, profile)
		}
		rooms = append(rooms, room)
	}
	return rooms
}

// taken is what allocated instances take; false where they are not ones that the board can hold.
func (r *rules) taken(allocated []gpu.Placement) (taken room, counts []int, sound bool) {
	taken, counts = r.empty(), make([]int, len(r.profiles))
	for _, p := range allocated {
		profile, known := r.index[p.Profile]
		if !known || !r.onBoard(p.Start, profile) {
			return taken, counts, false
		}
		next, fits := r.with(taken, profile, p.Start)
		if !fits {
			return taken, counts, false
		}
		taken = next
		counts[profile]++
	}
	return taken, counts, true
}

// more is how many instances of a profile can be added to the given counts where some are placed already.
func (r *rules) more(taken room, counts []int, profile int) int {
	wanted := append([]int(nil), counts...)
	for n := 0; ; n++ {
		wanted[profile]++
		if _, fits := r.place(taken, wanted); !fits {
			return n
		}
	}
}
