// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"slices"

	"github.com/go-logr/logr"

	"github.com/sluice-gpu/sluice/internal/contexts"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// Figures says what new shares are to be charged for a context. Every agent of the node has one; it reads what the active
// one recorded.
type Figures struct {
	Records Records
	Log     logr.Logger
}

// Context is what a context of the result's share is charged. Where the record cannot be read it is the safe figure.
func (f Figures) Context(r checkpoint.Result) uint64 {
	published, err := f.Records.Published()
	key, ok := keyOf(r, &published)
	figure := uint64(0)
	if err == nil && ok {
		var measured checkpoint.Contexts
		measured, err = f.Records.Contexts()
		figure = known(measured)[key]
	}
	if err != nil {
		f.Log.Error(err, "Not knowing what a context costs, the share is charged the safe figure", "device", r.Device)
	}
	return contexts.Charge(figure, uint64(max(r.Memory, 0)))
}

// keyOf is what the cost of the result's contexts depends on; false where its GPU is not offered any more.
func keyOf(r checkpoint.Result, published *checkpoint.Published) (contexts.Key, bool) {
	offered := published.ByUUID(r.GPU)
	if offered == nil {
		return contexts.Key{}, false
	}
	key := contexts.Key{Product: offered.Facts.Product, Driver: offered.Facts.DriverVersion, Mode: string(offered.Form.Sharing)}
	if r.Placement != nil {
		key.Profile = r.Placement.Profile
	}
	return key, true
}

// known are the figures of a record, without those that nobody can have measured.
func known(c checkpoint.Contexts) map[contexts.Key]uint64 {
	figures := map[contexts.Key]uint64{}
	for _, f := range c.Figures {
		if contexts.Believable(f.Bytes) {
			figures[contexts.Key{Product: f.Product, Driver: f.Driver, Profile: f.Profile, Mode: f.Mode}] = f.Bytes
		}
	}
	return figures
}

// record is the record of figures, in an order of its own.
func record(figures map[contexts.Key]uint64) checkpoint.Contexts {
	c := checkpoint.Contexts{}
	for key, bytes := range figures {
		c.Figures = append(c.Figures, checkpoint.ContextFigure{
			Product: key.Product, Driver: key.Driver, Profile: key.Profile, Mode: key.Mode, Bytes: bytes,
		})
	}
	slices.SortFunc(c.Figures, func(a, b checkpoint.ContextFigure) int {
		return cmp.Or(cmp.Compare(a.Product, b.Product), cmp.Compare(a.Driver, b.Driver),
			cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Mode, b.Mode))
	})
	return c
}
