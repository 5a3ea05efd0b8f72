package mkfs

import "btrlab/internal/format"

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

// putAll writes what is gathered to every copy, piece by piece.
func (m *maker) putAll(w *writer) error {
	c := &w.in.c
	p := format.ProfileOf(c.Type)
	at := w.start - w.in.logical
	for buf := w.buf; len(buf) > 0; {
		piece := p.Locate(len(c.Stripes), c.Length, at)
		n := min(uint64(len(buf)), piece.Len)
		for _, s := range c.Stripes[piece.First : piece.First+piece.Copies] {
			if err := m.devs[s.Devid-1].put(buf[:n], s.Offset+piece.Off); err != nil {
				return err
			}
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
