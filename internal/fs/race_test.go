package fs_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// gate is a source that stops the writer at a place of the source: after the locks are taken or
// dropped, before any page is locked.
type gate struct {
	at     int // source offset
	inside atomic.Bool
	open   atomic.Bool
}

func (g *gate) FaultIn(t *sched.Task, from, to int) int {
	if from >= g.at {
		g.inside.Store(true)
		fstest.Until(g.open.Load)
	}
	return to - from
}

func (g *gate) Present(from, to int) int { return to - from }

// TestTruncateRace is the race that Omar Sandoval found in seed 002 (labs/reference 1.3). A writer
// inside EOF has begun when a truncate to a smaller size comes. As posted, the truncate sets
// i_size, waits for the writer, and the writer puts i_size back: the truncate is lost. With the
// wait first, or with any other lock, it is not.
func TestTruncateRace(t *testing.T) {
	const size, newSize = 64 << 10, 4096
	for i := range policy.Presets {
		p := &policy.Presets[i]
		t.Run(p.Name, func(t *testing.T) {
			x := fstest.New(t, fstest.Policy(p.Name))
			f := x.Create("/f")
			x.WriteAt(f, make([]byte, size), 0)
			var g gate
			writer := x.T.Go("writer", func(t *sched.Task) {
				if n, err := f.WriteIter(t, kiocb.Request{Pos: uint64(size - 4096)}, iopath.Source{Buf: make([]byte, 4096), Faults: &g}); n != 4096 || err != nil {
					x.Errorf("write: %d, %v", n, err)
				}
			})
			fstest.Until(g.inside.Load)
			truncater := x.T.Go("truncate", func(t *sched.Task) {
				if err := f.Truncate(t, newSize); err != nil {
					x.Error(err)
				}
			})
			lost := !p.Contract().TruncateHolds
			if lost {
				// i_size is changed, the writer still there
				fstest.Until(func() bool { return f.Size(x.T) == newSize })
			} else {
				// the truncate has i_rwsem, or waits for the writer that has it
				fstest.Until(func() bool {
					if f.Inode().TryLock(x.T) {
						f.Inode().Unlock(x.T)
						return false
					}
					return true
				})
			}
			g.open.Store(true)
			x.T.Join(writer)
			x.T.Join(truncater)
			want := int64(newSize)
			if lost {
				want = size
			}
			if have := f.Size(x.T); have != want {
				t.Errorf("size after truncate: have %d want %d", have, want)
			}
			x.Must(f.Close(x.T))
		})
	}
}

// TestInterleave is Christoph Hellwig's objection to seed 002 (labs/reference 1.5). A writer has
// done its first batch when another, of the same range, comes and goes. Without a lock over the
// whole write the file ends as a mix that no order of the two explains; with i_rwsem or a range
// lock the second waits.
func TestInterleave(t *testing.T) {
	const size = 64 * 4096 // two batches of 32 pages; one page each where the plan says so
	for i := range policy.Presets {
		p := &policy.Presets[i]
		t.Run(p.Name, func(t *testing.T) {
			x := fstest.New(t, fstest.Policy(p.Name))
			f := x.Create("/f")
			x.WriteAt(f, make([]byte, size), 0)
			g := gate{at: 1}
			a, b := bytes.Repeat([]byte{'a'}, size), bytes.Repeat([]byte{'b'}, size)
			first := x.T.Go("a", func(t *sched.Task) {
				if n, err := f.WriteIter(t, kiocb.Request{Pos: 0}, iopath.Source{Buf: a, Faults: &g}); n != size || err != nil {
					x.Errorf("write: %d, %v", n, err)
				}
			})
			fstest.Until(g.inside.Load)
			var over atomic.Bool
			second := x.T.Go("b", func(t *sched.Task) {
				if n, err := f.WriteAt(t, b, 0); n != size || err != nil {
					x.Errorf("write: %d, %v", n, err)
				}
				over.Store(true)
			})
			mixed := p.Contract().WriteAtom < policy.AtomRequest
			if mixed {
				fstest.Until(over.Load)
			}
			g.open.Store(true)
			x.T.Join(first)
			x.T.Join(second)
			have := x.ReadFile("/f")
			if bytes.Equal(have, a) || bytes.Equal(have, b) == mixed {
				t.Errorf("the file is all a: %v, all b: %v; want a mix: %v", bytes.Equal(have, a), bytes.Equal(have, b), mixed)
			}
			x.Must(f.Close(x.T))
		})
	}
}
