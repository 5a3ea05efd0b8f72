package blockdev

import "btrlab/internal/sched"

// Range is a range of one of several devices.
type Range struct {
	Dev int   // by its place in the list of devices
	Off int64 // in bytes
	Len int   // in bytes
}

// Replace copies ranges from devices to others so that it can be taken back. Before the first write
// undo is called with the bytes that each range of to has, which it may not keep, and done must
// make them durable. Then the groups are written in order, each durable before the next begins.
func Replace(t *sched.Task, from, to []Device, groups [][]Range, undo func(dev int, off int64, old []byte) error, done func() error) error {
	var buf []byte
	room := func(n int) []byte {
		if n > len(buf) {
			buf = make([]byte, n)
		}
		return buf[:n]
	}
	for _, g := range groups {
		for _, c := range g {
			p := room(c.Len)
			if err := Read(t, to[c.Dev], p, c.Off); err != nil {
				return err
			}
			if err := undo(c.Dev, c.Off, p); err != nil {
				return err
			}
		}
	}
	if err := done(); err != nil {
		return err
	}
	for _, g := range groups {
		for _, c := range g {
			p := room(c.Len)
			if err := Read(t, from[c.Dev], p, c.Off); err != nil {
				return err
			}
			if err := Write(t, to[c.Dev], p, c.Off); err != nil {
				return err
			}
		}
		for _, d := range to {
			if err := Flush(t, d); err != nil {
				return err
			}
		}
	}
	return nil
}
