package mkfs

import (
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// writer gathers what lies together in the logical addresses of one chunk.
type writer struct {
	buf   []byte
	start uint64
	in    *chunk
}

// Bytes that are written at once.
const (
	dataWrite  = 1 << 20
	blockWrite = 256 << 10
)

func (m *maker) writeData(p []byte, logical uint64) error {
	return m.gather(&m.dataOut, dataWrite, p, logical)
}

func (m *maker) writeBlock(n format.Node) error {
	return m.gather(&m.blockOut, blockWrite, n, n.Bytenr())
}

func (m *maker) gather(w *writer, most int, p []byte, logical uint64) error {
	if w.in == nil || logical != w.start+uint64(len(w.buf)) || logical >= w.in.end() || len(w.buf)+len(p) > most {
		if err := m.flush(w); err != nil {
			return err
		}
		w.start, w.in = logical, m.chunkOf(logical)
	}
	w.buf = append(w.buf, p...)
	return nil
}

// flush writes what is gathered, or keeps it while its chunk floats.
func (m *maker) flush(w *writer) error {
	if len(w.buf) == 0 {
		return nil
	}
	if w.in.floats {
		m.waiting = append(m.waiting, writer{append([]byte(nil), w.buf...), w.start, w.in})
	} else if err := m.putAll(w); err != nil {
		return err
	}
	w.buf = w.buf[:0]
	return nil
}

// putAll writes what is gathered to every copy, piece by piece, with parity.
func (m *maker) putAll(w *writer) error {
	c := image.NewChunk(w.in.logical, &w.in.c, func(s format.Stripe) *image.Device {
		return &image.Device{Device: m.devs[s.Devid-1].Device, ID: s.Devid}
	})
	at := w.start
	for buf := w.buf; len(buf) > 0; {
		_, run := c.Places(at)
		n := min(uint64(len(buf)), run)
		err := c.Put(m.devs[0].t, at, buf[:n], func(s image.Stripe, p []byte) error { return m.devs[s.Devid-1].put(p, s.Off) })
		if err != nil {
			return err
		}
		buf, at = buf[n:], at+n
	}
	return nil
}

// sync makes what is written durable.
func (m *maker) sync() error {
	for _, d := range m.devs {
		if err := d.flush(); err != nil {
			return err
		}
	}
	return nil
}
