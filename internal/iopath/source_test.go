package iopath

import (
	"testing"

	"btrlab/internal/sched"
)

// mapped is memory of which only the bytes before it can be touched.
type mapped int

func (m mapped) FaultIn(_ *sched.Task, from, to int) int { return m.Present(from, to) }
func (m mapped) Present(from, to int) int                { return max(0, min(to, int(m))-from) }

// TestSourceAfter: a direct write that has written n bytes leaves the rest to the page cache, which
// gets the bytes after them, and faults in the pages of those. With the bytes of the start the file
// would have them twice.
func TestSourceAfter(t *testing.T) {
	s := Source{Buf: []byte("abcdefgh"), Faults: mapped(6)}
	k := sched.NewTask("test")
	for n, want := range map[int]int{0: 6, 2: 4, 6: 0, 8: 0} {
		r := s.After(n)
		if string(r.Buf) != "abcdefgh"[n:] {
			t.Errorf("after %d: have %q", n, r.Buf)
		}
		if have := r.Faults.Present(0, len(r.Buf)); have != want {
			t.Errorf("after %d: %d bytes are present, want %d", n, have, want)
		}
		if have := r.Faults.FaultIn(k, 0, len(r.Buf)); have != want {
			t.Errorf("after %d: %d bytes can be faulted in, want %d", n, have, want)
		}
	}
	if r := s.After(1).After(2); string(r.Buf) != "defgh" || r.Faults.Present(0, 5) != 3 {
		t.Errorf("after 1 and 2: have %q, %d present", r.Buf, r.Faults.Present(0, 5))
	}
	if r := (Source{Buf: []byte("ab")}).After(1); string(r.Buf) != "b" || r.Faults != nil {
		t.Errorf("without faults: %+v", r)
	}
}
