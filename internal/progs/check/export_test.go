package check

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Spot is a place on a device.
type Spot struct {
	Dev   blockdev.Device
	Devid uint64
	Off   uint64
}

// MapOf is the chunk map of some devices.
type MapOf struct{ c *checker }

// NewMap reads it.
func NewMap(t *sched.Task, devs []blockdev.Device) (MapOf, error) {
	c := &checker{Seen: Seen{Image: Image{Task: t, Roots: map[uint64]Root{}}, Visited: map[uint64]uint32{}, Broken: map[string]bool{}}}
	for _, d := range devs {
		c.Devs = append(c.Devs, &Device{Device: d})
	}
	if err := c.checkSuper(); err != nil {
		return MapOf{}, err
	}
	c.scratch = make([]byte, c.Super.NodeSize)
	return MapOf{c}, c.checkChunks()
}

// First is the logical start of the first chunk of the type.
func (m MapOf) First(typ uint64) uint64 {
	for _, ch := range m.c.Chunks {
		if ch.Type&typ != 0 {
			return ch.Start
		}
	}
	return 0
}

// At is the places of the copies of the byte at logical.
func (m MapOf) At(logical uint64) []Spot {
	list, _ := m.c.ChunkAt(logical).Places(logical)
	return placesOf(list)
}

// DataRow is the units of the first row that has data with checksums: data, P, Q. They are as far
// into their units as the first of the data.
func (m MapOf) DataRow() (list []Spot) {
	c := m.c
	c.loadRoots()
	c.loadExtents()
	c.loadCsums(&dataCheck{c: c})
	at := c.csums[0].Start
	ch := c.ChunkAt(at)
	units := ch.row(at)
	row := (at - ch.Start) / format.StripeLen / ch.width()
	for i := range units {
		list = append(list, placesOf(units)[(uint64(i)+row)%uint64(len(units))])
	}
	return list
}

// ChunkRoot is the address of the chunk tree.
func (m MapOf) ChunkRoot() uint64 { return m.c.Super.ChunkRoot }

func placesOf(list []Stripe) (out []Spot) {
	for _, s := range list {
		out = append(out, Spot{s.Dev.Device, s.Dev.ID(), s.Off})
	}
	return out
}
