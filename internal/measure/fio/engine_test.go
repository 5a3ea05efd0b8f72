package fio

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// A tenth of a second of 4 KiB writes that take 10 us each, on one file: how many an engine does,
// and which part of the time it takes for submission and which for completion.
func TestEngines(t *testing.T) {
	const us = int64(1000)
	for _, c := range []struct {
		job        string
		ios        uint64
		slat, clat int64 // the longest, but for the last requests, in ns
		depth      int   // level of all but the first and the last
	}{
		{"psync", 10_000, 0, 10 * us, 0},
		{"sync", 10_000, 0, 10 * us, 0},
		{"pvsync2", 10_000, 0, 10 * us, 0},
		{"pvsync2\nnowait", 10_000, 0, 10 * us, 0},
		{"libaio", 10_000, 10 * us, 0, 0},
		{"libaio\niodepth=4", 10_000, 10 * us, 30 * us, 2},
		{"libaio\ndirect=1", 10_000, 0, 10 * us, 0},
		{"libaio\ndirect=1\niodepth=4", 40_000, 0, 10 * us, 2},
		{"io_uring", 10_000, 10 * us, 0, 0},
		{"io_uring\niodepth=4", 10_000, 10 * us, 30 * us, 2},
		// a full queue is submitted as it is
		{"io_uring\niodepth=4\niodepth_batch_submit=3", 10_000, 30 * us, 30 * us, 2},
		{"io_uring\ndirect=1\niodepth=4", 40_000, 0, 10 * us, 2},
		{"io_uring\nforce_async=1", 10_000, 0, 10 * us, 0},
		// the writes of one inode wait for each other
		{"io_uring\nforce_async=1\niodepth=4", 10_000, 0, 40 * us, 2},
		{"io_uring\nforce_async=1\niodepth=4\nrw=randread", 40_000, 0, 10 * us, 2},
		// the worker queues it and takes the next one
		{"io_uring\nforce_async=1\ndirect=1\niodepth=4", 40_000, 0, 10 * us, 2},
	} {
		m := &memory{cost: 10 * time.Microsecond}
		r := runJob(t, "[j]\nrw=randwrite\nnorandommap\nsize=1m\nfallocate=none\nruntime=100ms\ntime_based\nioengine="+c.job, asDirect{m})
		noError(t, r)
		j := r.Jobs[0]
		d := &j.Write
		if strings.Contains(c.job, "randread") {
			d = &j.Read
		}
		if n := d.IOs; n < c.ios || n > c.ios+3 { // three more at the end of the time
			t.Errorf("%s: %d requests, want %d", c.job, n, c.ios)
		}
		if clat := d.Clat.Percentile(99); d.Slat.Max() != c.slat || clat < c.clat-c.clat/64 || clat > c.clat+c.clat/64 {
			t.Errorf("%s: slat up to %d, clat up to %d, want %d and %d", c.job, d.Slat.Max(), clat, c.slat, c.clat)
		}
		if n := j.Depth[c.depth]; n+3 < d.IOs {
			t.Errorf("%s: depths %v of %d", c.job, j.Depth, d.IOs)
		}
		if d.Lat.N() != d.IOs || d.Bytes != 4096*d.IOs {
			t.Errorf("%s: %d latencies, %d bytes of %d requests", c.job, d.Lat.N(), d.Bytes, d.IOs)
		}
	}
}

// In real time a request that had ended when it was looked at ended with its Submit, and one that
// was waited for after the wait.
func TestEndsInRealTime(t *testing.T) {
	for _, c := range []struct {
		job       string
		m         Target
		lat, clat int64 // the shortest, in ns
	}{
		// reap submits the fourth
		{"io_uring\niodepth=4\niodepth_batch_submit=3", asDirect{&memory{cost: 10 * time.Microsecond}}, 10_000, 0},
		{"libaio\niodepth=8", &queueMemory{}, 12_000, 10_000},
	} {
		jf, err := Parse("test.fio", strings.NewReader("[j]\nrw=write\nsize=256k\nfallocate=none\nioengine="+c.job))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(sched.NewTask("test"), jf, Options{Open: func(*sched.Task, *Job, string) (Target, error) { return c.m, nil }})
		if err != nil {
			t.Fatal(err)
		}
		noError(t, r)
		if d := &r.Jobs[0].Write; d.IOs != 64 || d.Lat.Min() < c.lat || d.Clat.Min() < c.clat {
			t.Errorf("%s: %d writes, lat from %d, clat from %d, want 64, %d and %d", c.job, d.IOs, d.Lat.Min(), d.Clat.Min(), c.lat, c.clat)
		}
	}
}

// In virtual time a look at the completions takes what it costs.
func TestLookTakesTime(t *testing.T) {
	jf, err := Parse("test.fio", strings.NewReader("[j]\nrw=write\nsize=256k\nfallocate=none\nioengine=io_uring"))
	if err != nil {
		t.Fatal(err)
	}
	costs := cost.Table{CPU: 1}
	costs.Entries[cost.RingReap].Nano = 40
	_, err = vtime.Run(vtime.Machine{CPUs: 1, Costs: &costs}, func(task *sched.Task) {
		r, err := Run(task, jf, Options{Open: func(*sched.Task, *Job, string) (Target, error) { return asDirect{&memory{}}, nil }})
		if err != nil {
			t.Error(err)
			return
		}
		noError(t, r)
		if d := &r.Jobs[0].Write; d.Clat.Min() != 40 || d.Clat.Max() != 40 {
			t.Errorf("clat from %d to %d, want 40", d.Clat.Min(), d.Clat.Max())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// iodepth_batch_submit requests are submitted at once, and when iodepth are in flight fio waits for
// iodepth_batch_complete_min and goes on until iodepth_low are left.
func TestBatches(t *testing.T) {
	for _, c := range []struct {
		opt              string
		submit, complete [7]uint64
	}{
		{"", [7]uint64{1: 64}, [7]uint64{1: 57, 2: 1}}, // 7 at the end
		// a full queue is submitted as it is
		{"iodepth_batch_submit=8", [7]uint64{1: 56, 2: 1}, [7]uint64{1: 57, 2: 1}},
		{"iodepth_batch_submit=8\niodepth_batch_complete_min=8", [7]uint64{2: 8}, [7]uint64{2: 8}},
		// 8, then 6 at a time, 4 at the end
		{"iodepth_batch_complete_min=6", [7]uint64{1: 64}, [7]uint64{1: 1, 2: 10}},
		{"iodepth_batch_complete_min=2\niodepth_batch_complete_max=8", [7]uint64{1: 64}, [7]uint64{2: 8}},
		// one by one down to 4, and 4 at the end
		{"iodepth_low=4", [7]uint64{1: 64}, [7]uint64{1: 61}},
	} {
		m := &memory{cost: time.Millisecond}
		r := runJob(t, "[j]\nrw=write\nsize=256k\nioengine=io_uring\ndirect=1\niodepth=8\n"+c.opt, asDirect{m})
		noError(t, r)
		j := r.Jobs[0]
		if j.Write.IOs != 64 || j.Submit != c.submit || j.Complete != c.complete {
			t.Errorf("%s: %d writes, submitted %v want %v, completed %v want %v", c.opt, j.Write.IOs, j.Submit, c.submit, j.Complete, c.complete)
		}
	}
}

// A part that was done at once is no error: the rest goes to a worker of the ring, or is the next
// request of libaio and pvsync2, and each byte is written once.
func TestShort(t *testing.T) {
	for _, engine := range []string{"pvsync2\nnowait", "libaio\nnowait\niodepth=4", "io_uring\niodepth=4", "io_uring\nnowait\niodepth=4"} {
		m := &memory{cost: time.Microsecond, short: func(p []byte) int { return (len(p) + 1) / 2 }}
		r := runJob(t, "[j]\nrw=write\nsize=64k\nfallocate=none\nverify=crc32c\nioengine="+engine, asDirect{m})
		noError(t, r)
		j := r.Jobs[0]
		if j.Write.IOs != 16 || j.Write.Bytes != 64<<10 {
			t.Errorf("%s: %d writes of %d bytes", engine, j.Write.IOs, j.Write.Bytes)
		}
		if short := j.Write.Short; (short > 0) != strings.Contains(engine, "nowait") {
			t.Errorf("%s: %d short writes", engine, short) // the ring's own are not fio's
		}
		seen := map[int64]int{}
		for _, io := range m.log {
			for o := io.off; io.write && o < io.off+int64(io.n); o++ {
				seen[o]++
			}
		}
		for o, n := range seen {
			if n != 1 {
				t.Fatalf("%s: byte %d is written %d times", engine, o, n)
			}
		}
	}
}

// EAGAIN ends a job with nowait, unless ignore_error has it: then it is counted. Without nowait the
// ring's workers do what would have slept.
func TestAgain(t *testing.T) {
	for _, c := range []struct {
		engine       string
		ios, ignored uint64
		errno        int
	}{
		{"pvsync2\nnowait", 1, 0, 11},
		{"pvsync2\nnowait\nignore_error=,EAGAIN", 8, 8, 0},
		{"libaio\nnowait\nignore_error=EAGAIN", 8, 8, 0},
		{"io_uring\nnowait\nignore_error=EAGAIN:5", 8, 8, 0},
		{"io_uring\nnowait\nignore_error=EIO", 1, 0, 11},
		{"io_uring", 16, 0, 0},
	} {
		n := 0
		m := &memory{cost: time.Microsecond, short: func(p []byte) int {
			if n++; n%2 == 0 {
				return -1
			}
			return len(p)
		}}
		r := runJob(t, "[j]\nrw=write\nsize=64k\nfallocate=none\nioengine="+c.engine, asDirect{m})
		j := r.Jobs[0]
		if j.Write.IOs != c.ios || j.Ignored != c.ignored || j.Errno != c.errno || c.ignored > 0 && j.FirstIgnored != 11 {
			t.Errorf("%s: %d writes, %d ignored errors, first %d; ended with %d", c.engine, j.Write.IOs, j.Ignored, j.FirstIgnored, j.Errno)
		}
		var b strings.Builder
		if err := r.WriteJSON(&b, false); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`"total_err" : %d`, c.ignored); strings.Contains(b.String(), want) != strings.Contains(c.engine, "ignore") {
			t.Errorf("%s: JSON without or with %s", c.engine, want)
		}
	}
	jf, err := Parse("x", strings.NewReader("[j]\nrw=write\nsize=4k\nioengine=pvsync2\nnowait"))
	if err != nil {
		t.Fatal(err)
	}
	simulate(t, func(task *sched.Task) {
		r, err := Run(task, jf, Options{Open: func(*sched.Task, *Job, string) (Target, error) { return &memory{}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		if _, text, _ := r.FirstError(); !strings.Contains(text, "does not support nowait=1") {
			t.Errorf("nowait on a target without it: %q", text)
		}
	})
}

// A run that is stopped with requests in flight waits for them: each is counted, and none is made
// after.
func TestStopInFlight(t *testing.T) {
	for _, engine := range []string{"libaio\ndirect=1", "io_uring\ndirect=1", "io_uring\nforce_async=1"} {
		var stop atomic.Bool
		m := &memory{cost: time.Millisecond}
		m.fail = func(bool, int64) error {
			if len(m.log) == 300 {
				stop.Store(true)
			}
			return nil
		}
		r := runJob(t, "[j]\nrw=randwrite\nnorandommap\nsize=1m\nruntime=60\ntime_based\niodepth=256\nioengine="+engine, asDirect{m}, func(o *Options) { o.Stop = &stop })
		noError(t, r)
		if w := &r.Jobs[0].Write; w.IOs != uint64(len(m.log)) || w.IOs < 300 || w.IOs > 600+256 {
			t.Errorf("%s: %d writes counted, %d made", engine, w.IOs, len(m.log))
		}
	}
}

// Errors of requests in flight: the first is the job's, the others end too.
func TestErrorInFlight(t *testing.T) {
	for _, engine := range []string{"libaio", "libaio\ndirect=1", "io_uring", "io_uring\ndirect=1", "io_uring\nforce_async=1"} {
		m := &memory{cost: time.Millisecond, fail: func(_ bool, off int64) error {
			if off >= 32<<10 {
				return fmt.Errorf("block %d: %w", off/4096, errno.EIO)
			}
			return nil
		}}
		r := runJob(t, "[j]\nrw=write\nsize=256k\nfallocate=none\niodepth=8\nioengine="+engine, asDirect{m})
		job := r.Jobs[0]
		if job.Errno != 5 || !strings.HasPrefix(job.ErrorText, "block 8:") || job.Write.IOs != 8 {
			t.Errorf("%s: %d writes, %q (%d)", engine, job.Write.IOs, job.ErrorText, job.Errno)
		}
	}
}

// ends is a Stamper that keeps how long each write took.
type ends struct {
	n    uint64
	took []int64
}

func (s *ends) Stamp([]byte, int64) uint64 { s.n++; return s.n }
func (s *ends) Done(_ uint64, start, end int64, _ error) {
	s.took = append(s.took, end-start)
}

// The Stamper hears of a buffered write of libaio that it ended with its submission, not when its
// event was taken: the narrower the interval, the fewer blocks may be stale.
func TestStampEnds(t *testing.T) {
	s := &ends{}
	m := &memory{cost: 10 * time.Microsecond}
	noError(t, runJob(t, "[j]\nrw=write\nsize=64k\nioengine=libaio\niodepth=8", asDirect{m}, func(o *Options) { o.Stamper = func(*Job, int) Stamper { return s } }))
	if len(s.took) != 16 {
		t.Fatalf("%d of 16 writes ended", len(s.took))
	}
	for _, d := range s.took {
		if d != 10_000 {
			t.Errorf("a write took %d ns, want 10 us", d)
		}
	}
}
