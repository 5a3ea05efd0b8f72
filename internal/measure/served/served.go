// Package served measures a file that is served as a disk: what a guest would get whose disk it is,
// under each policy.
//
// Model: the disk of a virtual machine, or the logical unit of an iSCSI target, in the discussion
// of seed 002: a file of the host that the guest's page cache writes back to, 4 KiB here and 4 KiB
// there, many at a time, with a flush now and then for its journal. The clients speak NBD through a
// socket; what they wait for is in the lock profile of the server.
package served

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"btrlab/internal/fs"
	"btrlab/internal/measure/profile"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/stats"
	"btrlab/internal/nbd"
	"btrlab/internal/nbd/filedisk"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// Block is the bytes of a request: a page of the guest.
const Block = 4096

// Options says what to measure.
type Options struct {
	Policies []string      // at least one; the first is the one that others are compared with
	Model    string        // of the device, as rig.Config
	Size     int64         // of the disk, in bytes
	Depth    int           // requests under way
	Reads    int           // percent of the requests that read
	Flush    time.Duration // from one flush to the next; 0 is none
	Time     time.Duration // of each run
	Rounds   int
	Seed     uint64
	// Progress, if set, is told of each run before it begins.
	Progress func(round int, policy string)
	// Stop, if set, is asked before each run; its error ends all but leaves the rounds that ended.
	Stop func() error
}

// Row is a policy with what its runs came to.
type Row struct {
	Policy string    `json:"policy"`
	Rate   []float64 `json:"requests_per_second"` // of each round
	Ratio  []float64 `json:"ratio"`               // to the first policy
	P50    []float64 `json:"write_p50_ns"`        // of the latency of a write
	P99    []float64 `json:"write_p99_ns"`
	// Parts of the time of reads and writes, 0 to 1: waits for stable pages, for the lock of the
	// inode or a range of it, and for ordered extents.
	Stable  []float64 `json:"stable_pages"`
	Lock    []float64 `json:"inode_lock"`
	Ordered []float64 `json:"ordered_extents"`
}

// Run measures the policies in alternating rounds, each on a file that is written and NOCOW, as a
// disk that has been used. With the error of Stop the rows have the rounds that ended before it.
func Run(t *sched.Task, o Options) ([]Row, error) {
	rows := make([]Row, len(o.Policies))
	for i, p := range o.Policies {
		if _, err := policy.Parse(p); err != nil {
			return nil, err
		}
		rows[i].Policy = p
	}
	r, err := used(t, &o)
	if err != nil {
		return nil, err
	}
	for round := 0; round < o.Rounds && err == nil; round++ {
		for i := range rows {
			if o.Stop != nil {
				if err = o.Stop(); err != nil {
					only(rows, round)
					break
				}
			}
			if o.Progress != nil {
				o.Progress(round, rows[i].Policy)
			}
			if err = rows[i].run(t, r, &o, uint64(round)); err != nil {
				err = fmt.Errorf("policy %s: %w", rows[i].Policy, err)
				break
			}
			rows[i].compare(&rows[0])
		}
	}
	return rows, errors.Join(err, r.Close())
}

// only leaves the first rounds of rows.
func only(rows []Row, rounds int) {
	for i := range rows {
		r := &rows[i]
		for _, list := range []*[]float64{&r.Rate, &r.Ratio, &r.P50, &r.P99, &r.Stable, &r.Lock, &r.Ordered} {
			*list = (*list)[:min(rounds, len(*list))]
		}
	}
}

// used is a rig whose file is a disk that has been used: NOCOW, and each block written.
func used(t *sched.Task, o *Options) (*rig.Rig, error) {
	r, err := rig.Open(t, rig.Config{Model: o.Model, Size: max(rig.DefaultSize, 3*o.Size), Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	if err = r.Prepare(t, o.Size); err == nil {
		err = write(t, r, o.Size)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// write writes the file once, past the model, or the first runs would pay for the extents that are
// only reserved.
func write(t *sched.Task, r *rig.Rig, size int64) error {
	s, err := r.OpenRaw(t, "locked")
	if err != nil {
		return err
	}
	p := make([]byte, 1<<20)
	for off := int64(0); off < size && err == nil; off += int64(len(p)) {
		_, err = s.File().WriteAt(t, p[:min(int64(len(p)), size-off)], off)
	}
	if err == nil {
		err = s.File().Fsync(t)
	}
	return errors.Join(err, s.Close(t))
}

// run is one run of a policy.
func (w *Row) run(t *sched.Task, r *rig.Rig, o *Options, round uint64) (err error) {
	x, err := r.OpenFS(t, w.Policy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close(t)) }()
	f, err := x.OpenFile(t, rig.TestFile, fs.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(t)) }()
	dir, err := os.MkdirTemp("", "btrlab-disk-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "disk"))
	if err != nil {
		return err
	}
	s := nbd.New(filedisk.New(t, f), nbd.Options{Policy: w.Policy, Name: "disk"})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer func() { err = errors.Join(err, s.Shutdown(), <-ended) }()

	waits := profile.NewLocks()
	stop := waits.Listen()
	g := guest{o: o, addr: l.Addr().String()}
	err = g.run(round)
	stop()
	if err != nil {
		return err
	}
	w.add(&g, waits.ByClass("read", "write"))
	return nil
}

// compare adds the ratio of the last round to that of the first policy: above 1 is faster.
func (w *Row) compare(first *Row) {
	i := len(w.Rate) - 1
	w.Ratio = append(w.Ratio, w.Rate[i]/first.Rate[i])
}

// add adds the figures of a run; by is how long its reads and writes have waited in all, in
// nanoseconds, by class of lock. Depth requests at a time share the time of the run.
func (w *Row) add(g *guest, by map[string]int64) {
	w.Rate = append(w.Rate, float64(g.requests)/g.took.Seconds())
	w.P50 = append(w.P50, float64(g.writes.Percentile(50)))
	w.P99 = append(w.P99, float64(g.writes.Percentile(99)))
	all := g.took.Seconds() * 1e9 * float64(g.o.Depth)
	w.Stable = append(w.Stable, float64(by["stable_page"])/all)
	w.Lock = append(w.Lock, float64(by["i_rwsem"]+by["range_lock"])/all)
	w.Ordered = append(w.Ordered, float64(by["ordered_extent"])/all)
}

// guest is the clients of a run.
type guest struct {
	o    *Options
	addr string

	mu       sync.Mutex // protects the fields below
	requests int
	writes   stats.Hist // latencies in ns
	took     time.Duration
	err      error
}

// run keeps Depth requests under way for the time of a run.
func (g *guest) run(round uint64) error {
	nc, err := net.Dial("unix", g.addr)
	if err != nil {
		return err
	}
	c, err := nbd.NewClient(nc, "")
	if err != nil {
		return err
	}
	began := time.Now()
	end := began.Add(g.o.Time)
	var wg sync.WaitGroup
	for k := range g.o.Depth {
		wg.Go(func() { g.requester(c, rand.New(rand.NewPCG(g.o.Seed+round, uint64(k))), end) })
	}
	if g.o.Flush > 0 {
		wg.Go(func() { g.flusher(c, end) })
	}
	wg.Wait()
	g.took = time.Since(began)
	return errors.Join(g.err, c.Close())
}

// requester sends one request after the other.
func (g *guest) requester(c *nbd.Client, r *rand.Rand, end time.Time) {
	p := make([]byte, Block)
	blocks := c.Size() / Block
	var writes stats.Hist
	n := 0
	var err error
	for now := time.Now(); err == nil && now.Before(end); n++ {
		off := r.Int64N(blocks) * Block
		read := r.IntN(100) < g.o.Reads
		if read {
			err = c.ReadAt(p, off)
		} else {
			p[0]++
			err = c.WriteAt(p, off)
		}
		then := time.Now()
		if !read {
			writes.Add(int64(then.Sub(now)))
		}
		now = then
	}
	g.mu.Lock()
	g.requests += n
	g.writes.Merge(&writes)
	g.err = cmp.Or(g.err, err)
	g.mu.Unlock()
}

// flusher flushes now and then, as a guest's journal does.
func (g *guest) flusher(c *nbd.Client, end time.Time) {
	tick := time.NewTicker(g.o.Flush)
	defer tick.Stop()
	for now := range tick.C {
		if !now.Before(end) {
			return
		}
		if err := c.Flush(); err != nil {
			g.mu.Lock()
			g.err = cmp.Or(g.err, err)
			g.mu.Unlock()
			return
		}
	}
}
