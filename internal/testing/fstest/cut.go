package fstest

import (
	"math/rand/v2"
	"sync"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// Cuts are the devices of one file system, each with a write cache of its own that only a flush of
// that device empties, and one history of what came to all of them: the power can be cut at each
// write of each device.
type Cuts struct {
	devs []*cutDevice
	mu   sync.Mutex
	log  []cutRecord
}

// cutRecord is the end of a write or of a flush, or a mark.
type cutRecord struct {
	dev   int
	off   int64
	data  []byte
	flush bool
	safe  int // of a flush: the records that had ended when it began
	mark  string
}

type cutDevice struct {
	*blockdev.Memory
	all  *Cuts
	i    int
	base *blockdev.Memory
}

// NewCuts begins with what is on the devices now.
func NewCuts(bases ...*blockdev.Memory) *Cuts {
	c := &Cuts{}
	for i, b := range bases {
		c.devs = append(c.devs, &cutDevice{b, c, i, b.Snapshot()})
	}
	return c
}

// Devices are the devices to be used.
func (c *Cuts) Devices() (list []blockdev.Device) {
	for _, d := range c.devs {
		list = append(list, d)
	}
	return list
}

// Mark says that something is promised from here on.
func (c *Cuts) Mark(name string) { c.add(cutRecord{mark: name}) }

func (c *Cuts) add(r cutRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, r)
}

// Submit passes a bio on and notes it at its end.
func (d *cutDevice) Submit(t *sched.Task, b *blockdev.Bio) {
	r := cutRecord{dev: d.i, off: b.Off, flush: b.Op == blockdev.OpFlush}
	switch b.Op {
	case blockdev.OpFlush:
		d.all.mu.Lock()
		r.safe = len(d.all.log)
		d.all.mu.Unlock()
	case blockdev.OpWrite:
		for _, v := range b.Vecs {
			r.data = append(r.data, v...)
		}
	}
	end := b.EndIO
	b.EndIO = func(t *sched.Task, b *blockdev.Bio) {
		if b.EndIO = end; b.Err == nil && b.Op != blockdev.OpRead {
			d.all.add(r)
		}
		end(t, b)
	}
	d.Memory.Submit(t, b)
}

// Cut is what is on the devices after a power cut.
type Cut struct {
	Devs []blockdev.Device
	Mark string // the last one before the cut, "" if there was none
	At   int    // the record at which it was
	Held int    // writes that no flush has made durable
}

// Each calls f with the states after a cut at every record of the history, or at every nth: with
// all that no flush has made durable lost, and with a random half of it lost, in sectors of 4096
// bytes, drawn by the seed. Each call has devices of its own.
func (c *Cuts) Each(t *sched.Task, nth int, seed uint64, f func(x Cut)) {
	rng := rand.New(rand.NewPCG(seed, 0))
	durable := make([]*blockdev.Memory, len(c.devs))
	held := make([][]int, len(c.devs)) // records of writes in the cache of each device
	for i, d := range c.devs {
		durable[i] = d.base
	}
	put := func(m *blockdev.Memory, r *cutRecord, half bool) {
		for at := 0; at < len(r.data); at += 4096 {
			if !half || rng.IntN(2) == 0 {
				NoError(blockdev.Write(t, m, r.data[at:min(at+4096, len(r.data))], r.off+int64(at)))
			}
		}
	}
	mark := ""
	for n := range c.log {
		r := &c.log[n]
		switch {
		case r.mark != "":
			mark = r.mark
		case r.flush:
			var left []int
			for _, i := range held[r.dev] {
				if i < r.safe {
					put(durable[r.dev], &c.log[i], false)
				} else {
					left = append(left, i)
				}
			}
			held[r.dev] = left
		default:
			held[r.dev] = append(held[r.dev], n)
		}
		if n%nth != 0 && r.mark == "" {
			continue
		}
		for _, half := range []bool{false, true} {
			x := Cut{Mark: mark, At: n}
			for i := range c.devs {
				m := durable[i].Snapshot()
				for _, w := range held[i] {
					x.Held++
					if half {
						put(m, &c.log[w], true)
					}
				}
				x.Devs = append(x.Devs, m)
			}
			f(x)
		}
	}
}

// Len is the number of records.
func (c *Cuts) Len() int { return len(c.log) }
