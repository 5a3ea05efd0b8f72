package dm

import (
	"slices"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// TestShared: requests in transfer share the rate in equal parts, at any moment those that are
// there; each waits its own latency first; a flush ends with the last transfer before it, and takes
// nothing from the rate; an error moves nothing.
func TestShared(tt *testing.T) {
	const ms = time.Millisecond
	// 1 MB/s: a block of 1,000 bytes alone takes a millisecond.
	p := Params{Name: "link", Disks: 1, Channels: 64, Depth: 64, Read: ms, Write: ms, BytesPerSec: 1e6, Shared: true}
	type request struct {
		at   time.Duration
		op   blockdev.Op
		n    int
		ends time.Duration
	}
	for name, list := range map[string][]request{
		"one":      {{0, blockdev.OpWrite, 5000, 6 * ms}},
		"alike":    {{0, blockdev.OpRead, 3000, 7 * ms}, {0, blockdev.OpWrite, 3000, 7 * ms}},
		"a small":  {{0, blockdev.OpWrite, 4000, 6 * ms}, {0, blockdev.OpWrite, 1000, 3 * ms}},
		"a late":   {{0, blockdev.OpWrite, 4000, 7 * ms}, {2 * ms, blockdev.OpWrite, 2000, 7 * ms}},
		"three":    {{0, blockdev.OpWrite, 1000, 4 * ms}, {0, blockdev.OpWrite, 2000, 6 * ms}, {0, blockdev.OpWrite, 3000, 7 * ms}},
		"far":      {{0, blockdev.OpWrite, 1000, 2 * ms}, {9 * ms, blockdev.OpWrite, 1000, 11 * ms}},
		"flush":    {{0, blockdev.OpWrite, 4000, 5 * ms}, {ms, blockdev.OpFlush, 0, 5 * ms}},
		"no write": {{0, blockdev.OpFlush, 0, 0}},
	} {
		_, err := vtime.Run(vtime.Machine{CPUs: 4, Costs: &cost.Table{}}, func(t *sched.Task) {
			m := New(t, blockdev.NewMemory(1<<20), p)
			begin := t.Now()
			var wait lock.WaitQueue
			wait.Init(plugClass)
			left := len(list)
			order := slices.Clone(list)
			slices.SortStableFunc(order, func(a, b request) int { return int(a.at - b.at) })
			for i, r := range order {
				t.Sleep(r.at - time.Duration(t.Now()-begin))
				b := &blockdev.Bio{Op: r.op, Off: int64(i) * 8192, EndIO: func(t *sched.Task, _ *blockdev.Bio) {
					if have := time.Duration(t.Now() - begin); have < r.ends || have > r.ends+10*time.Microsecond {
						tt.Errorf("%s: the request of %d bytes from %v on ends at %v, want %v", name, r.n, r.at, have, r.ends)
					}
					left--
					wait.Wake(t)
				}}
				if r.n > 0 {
					b.Vecs = [][]byte{make([]byte, r.n)}
				}
				m.Submit(t, b)
			}
			wait.Wait(t, func() bool { return left == 0 })
			if err := m.Close(); err != nil {
				tt.Error(err)
			}
		})
		if err != nil {
			tt.Errorf("%s: %v", name, err)
		}
	}
}

// However many requests there are, all of them together have the rate, and each has its share: the
// time of a request grows with their number. That of a model without Shared does not.
func TestSharedRate(tt *testing.T) {
	run := func(spec string, depth int) (mbPerSec float64) {
		p, err := Parse(spec)
		if err != nil {
			tt.Fatal(err)
		}
		const each, n = 64 << 10, 384
		_, err = vtime.Run(vtime.Machine{CPUs: 4, Costs: &cost.Table{}}, func(t *sched.Task) {
			m := New(t, blockdev.NewMemory(each), p)
			begin := t.Now()
			var all []*sched.Task
			for range depth {
				all = append(all, t.Go("reader", func(t *sched.Task) {
					buf := make([]byte, each)
					for range n / depth {
						if err := blockdev.Read(t, m, buf, 0); err != nil {
							tt.Error(err)
						}
					}
				}))
			}
			for _, x := range all {
				t.Join(x)
			}
			mbPerSec = each * n / float64(t.Now()-begin) * 1e3
			if err := m.Close(); err != nil {
				tt.Error(err)
			}
		})
		if err != nil {
			tt.Fatal(err)
		}
		return mbPerSec
	}
	for _, x := range []struct {
		spec   string
		depth  int
		lo, hi float64
	}{
		{"disk", 1, 297, 300}, // 65,536 bytes in 0.1 ms + 0.119 ms
		// All begin together, and for 0.1 ms nothing moves.
		{"disk", 8, 496, 499}, {"disk", 32, 535, 538},
		{"delay:read=0.1ms,rate=550e6", 1, 303, 316}, {"delay:read=0.1ms,rate=550e6", 8, 2424, 2530},
	} {
		if have := run(x.spec, x.depth); have < x.lo || have > x.hi {
			tt.Errorf("%s with %d requests at a time: have %.0f MB/s want %.0f to %.0f", x.spec, x.depth, have, x.lo, x.hi)
		}
	}
}
