package served

import (
	"errors"
	"math"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"btrlab/internal/format"
	"btrlab/internal/measure/rig"
	"btrlab/internal/nbd"
	"btrlab/internal/sched"
)

// Figures whose answer is known. TestRun asks a real disk, of which nobody knows what is right.

// TestKnownFigures: 3,000 requests in two seconds are 1,500 a second; the parts of waits are of the
// time of all requests under way, not of one; and a policy that answers twice as often as the first
// has a ratio of 2, not of a half.
func TestKnownFigures(t *testing.T) {
	run := func(requests int, took time.Duration, depth int, latencies ...int64) *guest {
		g := &guest{o: &Options{Depth: depth}, requests: requests, took: took}
		for _, l := range latencies {
			g.writes.Add(l)
		}
		return g
	}
	var slow, fast Row
	slow.add(run(3000, 2*time.Second, 4, slices.Repeat([]int64{1000}, 99)...), map[string]int64{"stable_page": 4e9, "i_rwsem": 1e9, "range_lock": 1e9, "ordered_extent": 8e8, "page": 5e9})
	fast.add(run(3000, time.Second, 1, append(slices.Repeat([]int64{1000}, 90), slices.Repeat([]int64{1e6}, 10)...)...), map[string]int64{"range_lock": 25e7})
	slow.compare(&slow)
	fast.compare(&slow)
	// Of the second round the ratio is that of the second round.
	slow.add(run(100, time.Second, 1, 1), nil)
	fast.add(run(25, time.Second, 1, 1), nil)
	slow.compare(&slow)
	fast.compare(&slow)
	near := func(what string, have, want float64) {
		t.Helper()
		if math.Abs(have-want) > want/50 {
			t.Errorf("%s: have %v want %v", what, have, want)
		}
	}
	near("rate", slow.Rate[0], 1500)
	near("rate in half the time", fast.Rate[0], 3000)
	near("stable pages", slow.Stable[0], 0.5) // 4 of the 8 seconds of 4 requests at a time
	near("locks of the inode", slow.Lock[0], 0.25)
	near("ordered extents", slow.Ordered[0], 0.1)
	near("a range lock at depth 1", fast.Lock[0], 0.25)
	near("no stable pages", fast.Stable[0], 0)
	near("median", fast.P50[0], 1000)
	near("99th percentile", fast.P99[0], 1e6)
	near("99th percentile of one latency", slow.P99[0], 1000)
	near("ratio to itself", slow.Ratio[0], 1)
	near("twice as fast", fast.Ratio[0], 2)
	near("a fourth in the second round", fast.Ratio[1], 0.25)
	if len(slow.Ratio) != 2 || len(fast.Ratio) != 2 {
		t.Errorf("ratios %v and %v", slow.Ratio, fast.Ratio)
	}
}

// TestConclude: three rounds on the same side of 1 tell nothing where they are far apart, as in a
// comparison of jobs: of two equal policies one in four such series is on one side.
func TestConclude(t *testing.T) {
	have := Conclude([]Row{{Policy: "locked", Rate: []float64{100, 200, 100}}, {Policy: "near", Rate: []float64{105, 320, 101}}, {Policy: "fast", Rate: []float64{150, 301, 149}}})
	want := []string{
		"near does 1.05 times the requests a second of locked (95 % confidence 0.63 to 2.25), which may be no difference at all. If that is so, some 11 rounds would tell.",
		"fast does 1.50 times the requests a second of locked (95 % confidence 1.48 to 1.52).",
	}
	if !slices.Equal(have, want) {
		t.Errorf("have %q\nwant %q", have, want)
	}
}

// TestUsedDisk: the disk of a run has each block written, in place: an extent that is only reserved
// has to be marked written by the first write, which is another path and another time.
func TestUsedDisk(t *testing.T) {
	task := sched.NewTask("test")
	const size = 5<<20 + 4096
	r, err := used(task, &Options{Model: "none", Size: size})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	x, err := r.OpenFS(task, "locked")
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close(task)
	n, err := x.NodeAt(task, rig.TestFile)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Forget(task, 1)
	end := uint64(0)
	err = n.Extents(task, func(off uint64, e format.FileExtent) {
		if e.Type != format.FileExtentTypeReg || e.DiskBytenr == 0 || off != end {
			t.Errorf("at %d, after the extent that ends at %d: %+v", off, end, e)
		}
		end = off + e.NumBytes
	})
	if err != nil || end != size {
		t.Errorf("written up to %d of %d, %v", end, size, err)
	}
	if a := n.Attr(task); a.Size != size || n.Flags()&format.InodeNoDataCow == 0 {
		t.Errorf("size %d, flags %#x", a.Size, n.Flags())
	}
}

// counted is a disk that counts what it is asked for. Its first requests wait until depth of them
// are under way.
type counted struct {
	depth int
	t     *testing.T

	mu             sync.Mutex
	waiting        int
	full           chan struct{}
	reads, writes  int
	flushes, other int
	at             map[int64]bool
}

func (d *counted) Size() int64 { return 64 * Block }

func (d *counted) request(n *int, p []byte, off int64) {
	d.mu.Lock()
	*n++
	if len(p) != Block || off%Block != 0 || off < 0 || off >= d.Size() {
		d.t.Errorf("a request of %d bytes at %d", len(p), off)
	}
	d.at[off] = true
	if d.waiting++; d.waiting == d.depth {
		close(d.full)
	}
	d.mu.Unlock()
	<-d.full
}

func (d *counted) ReadAt(_ *sched.Task, p []byte, off int64) error {
	d.request(&d.reads, p, off)
	return nil
}

func (d *counted) WriteAt(_ *sched.Task, p []byte, off int64) error {
	d.request(&d.writes, p, off)
	return nil
}

func (d *counted) Flush(*sched.Task) error { d.flushes++; return nil }

func (d *counted) Trim(*sched.Task, int64, int64) error { d.other++; return nil }

func (d *counted) Zero(*sched.Task, int64, int64, bool) error { d.other++; return nil }

func (d *counted) Extents(*sched.Task, int64, int64, func(int64, nbd.State) bool) error {
	d.other++
	return nil
}

// TestKnownRequests: a disk that counts has been asked as often as the clients say, with as many
// requests under way as they were told, of the kind that they were told, everywhere.
func TestKnownRequests(t *testing.T) {
	for _, reads := range []int{0, 100, 50} {
		d := &counted{depth: 7, t: t, full: make(chan struct{}), at: map[int64]bool{}}
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "disk"))
		if err != nil {
			t.Fatal(err)
		}
		s := nbd.New(d, nbd.Options{Name: "disk"})
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(l) }()
		g := guest{o: &Options{Depth: d.depth, Reads: reads, Time: 50 * time.Millisecond, Seed: 1}, addr: l.Addr().String()}
		err = g.run(0)
		if err := errors.Join(err, s.Shutdown(), <-ended); err != nil {
			t.Fatal(err)
		}
		if g.requests != d.reads+d.writes || g.requests < d.depth || int(g.writes.N()) != d.writes || d.flushes+d.other > 0 {
			t.Errorf("%d %% reads: the clients say %d requests and %d writes; the disk %d reads, %d writes, %d flushes, %d others", reads, g.requests, g.writes.N(),
				d.reads, d.writes, d.flushes, d.other)
		}
		if reads == 0 && d.reads > 0 || reads == 100 && d.writes > 0 || len(d.at) < 2 || g.took < g.o.Time {
			t.Errorf("%d %% reads: %d reads, %d writes at %d places, in %v", reads, d.reads, d.writes, len(d.at), g.took)
		}
	}
}
