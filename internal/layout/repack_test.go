// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
	"github.com/sluice-gpu/sluice/test/builders"
)

func TestRooms(t *testing.T) {
	board := layout.BoardOf(builders.Boards(t)["h100-80gb"])
	tests := []struct {
		name      string
		allocated []gpu.Placement
		profile   string
		want      layout.Room
	}{
		{name: "an empty GPU gains nothing", profile: "1g.10gb", want: layout.Room{Now: 7, AfterDrain: 7}},
		{
			name: "a small instance in the way of a large one could move", profile: "4g.40gb",
			allocated: []gpu.Placement{{Profile: "1g.10gb", Start: 0}}, want: layout.Room{Now: 0, AfterDrain: 1},
		},
		{
			name: "a small instance out of the way gains nothing", profile: "4g.40gb",
			allocated: []gpu.Placement{{Profile: "1g.10gb", Start: 6}}, want: layout.Room{Now: 1, AfterDrain: 1},
		},
		{
			name: "two instances spread over both halves", profile: "3g.40gb",
			allocated: []gpu.Placement{{Profile: "1g.10gb", Start: 0}, {Profile: "1g.10gb", Start: 6}}, want: layout.Room{Now: 0, AfterDrain: 1},
		},
		{
			name: "beside an instance that the board does not offer nothing is known", profile: "1g.10gb",
			allocated: []gpu.Placement{{Profile: "1g.99gb", Start: 0}},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			tc.want.Profile = tc.profile
			for _, got := range layout.Rooms(board, tc.allocated) {
				if got.Profile == tc.profile {
					if diff := cmp.Diff(tc.want, got); diff != "" {
						t.Errorf("room (-want +got):\n%s", diff)
					}
					return
				}
			}
			t.Errorf("no room for %s is told", tc.profile)
		})
	}
}
