package mkfs

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/format"
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

// putAll writes what is gathered to every copy.
func (m *maker) putAll(w *writer) error {
	for _, s := range w.in.c.Stripes {
		if err := m.put(w.buf, s.Offset+w.start-w.in.logical); err != nil {
			return err
		}
	}
	return nil
}

func (m *maker) put(p []byte, off uint64) error {
	if err := blockdev.Write(m.t, m.dev, p, int64(off)); err != nil {
		return blockdev.Errorf(m.dev, "write of %d bytes at %d: %w", len(p), off, err)
	}
	return nil
}
