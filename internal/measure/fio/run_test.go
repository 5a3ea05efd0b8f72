package fio

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
)

// runJob runs a job file given as text against m in virtual time.
func runJob(t *testing.T, text string, m Target, more ...func(*Options)) *stats.Run {
	t.Helper()
	jf, err := Parse("test.fio", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{Open: func(*sched.Task, *Job, string) (Target, error) { return m, nil }}
	for _, f := range more {
		f(&opt)
	}
	var r *stats.Run
	simulate(t, func(task *sched.Task) { r, err = Run(task, jf, opt) })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func noError(t *testing.T, r *stats.Run) {
	t.Helper()
	if job, text, no := r.FirstError(); no != 0 {
		t.Fatalf("job %s: %s (%d)", job, text, no)
	}
}

// A random job with the map writes every block of its region exactly once.
func TestRandomMapCoversOnce(t *testing.T) {
	for _, job := range []string{
		"rw=randwrite\nsize=1m\noffset=64k",
		"rw=randwrite\nsize=1m\noffset=64k\nbs=1k",
		"rw=randwrite\nsize=1000k\noffset=64k\nbs=12k",
		"rw=write\nsize=1m\noffset=64k\nbs=8k",
		"rw=randwrite\nsize=1m\noffset=64k\nbssplit=4k/50:8k/25:16k/25",
	} {
		m := &memory{}
		r := runJob(t, "[j]\n"+job, m)
		noError(t, r)
		seen := map[int64]int{}
		for _, io := range m.log {
			for o := io.off; o < io.off+int64(io.n); o += 512 {
				seen[o]++
			}
		}
		w := &r.Jobs[0].Write
		want := w.Bytes / 512
		if uint64(len(seen)) != want {
			t.Errorf("%q: %d units of 512 touched, want %d", job, len(seen), want)
		}
		for o, n := range seen {
			if n != 1 || o < 64<<10 || o >= 64<<10+1<<20 {
				t.Errorf("%q: offset %d written %d times", job, o, n)
				break
			}
		}
		if !strings.Contains(job, "12k") && w.Bytes != 1<<20 {
			t.Errorf("%q: %d bytes", job, w.Bytes)
		}
	}
}

// Without the map offsets repeat and spread over the whole region, and two tasks have unlike
// sequences; the same job file gives the same offsets again.
func TestRandomSequences(t *testing.T) {
	const job = "[j]\nrw=randwrite\nnorandommap\nsize=4m\nnumjobs=2\nfilename=f\nnumber_ios=4096\nio_size=1g"
	var first []ioRecord
	for range 2 {
		m := &memory{}
		noError(t, runJob(t, job, m))
		var hit [4]int
		byTask := map[string][]int64{}
		for _, io := range m.log {
			hit[io.off>>20]++
			byTask[io.task] = append(byTask[io.task], io.off)
		}
		for q, n := range hit {
			if n < 1900 || n > 2200 {
				t.Errorf("quarter %d of the region got %d of 8192 writes", q, n)
			}
		}
		if len(byTask) != 2 {
			t.Fatalf("%d tasks", len(byTask))
		}
		same := 0
		for i, o := range byTask["j.0"] {
			if o == byTask["j.1"][i] {
				same++
			}
		}
		if same > 40 { // 4 expected: 4096 of 1024 blocks
			t.Errorf("tasks agree on %d of 4096 offsets", same)
		}
		if first == nil {
			first = m.log
		} else {
			for i := range first {
				if first[i] != m.log[i] {
					t.Fatalf("request %d differs between runs: %+v, %+v", i, first[i], m.log[i])
				}
			}
		}
	}
}

// With buffered libaio fio reaps an event when iodepth are queued: each request's clat is the time
// of the iodepth-1 calls after it, its slat the time of its own call. Seed 002's latencies are of
// this kind.
func TestLibaioLatency(t *testing.T) {
	m := &memory{cost: 10 * time.Microsecond}
	r := runJob(t, "[j]\nrw=randwrite\nnorandommap\nioengine=libaio\niodepth=32\nsize=1m\nruntime=1\ntime_based", m)
	noError(t, r)
	w := &r.Jobs[0].Write
	if w.IOs != 100_000 {
		t.Errorf("%d writes in a second of 10 us each", w.IOs)
	}
	if got := w.Slat.Percentile(50); got != 10_000 && got != 10048 {
		t.Errorf("slat p50 %d, want 10 us", got)
	}
	if w.Clat.Max() != 310_000 || math.Abs(float64(w.Clat.Percentile(50))-310_000) > 310_000/64 {
		t.Errorf("clat p50 %d max %d, want 31 calls of 10 us", w.Clat.Percentile(50), w.Clat.Max())
	}
	if w.Clat.Min() != 0 { // the last request is reaped as soon as it ends
		t.Errorf("clat min %d", w.Clat.Min())
	}
	if w.Clat.N() != w.IOs || w.Lat.N() != w.IOs || w.Lat.Max() != 320_000 {
		t.Errorf("clat N %d lat N %d of %d, lat max %d", w.Clat.N(), w.Lat.N(), w.IOs, w.Lat.Max())
	}
	// psync measures the call alone
	r = runJob(t, "[j]\nrw=randwrite\nnorandommap\niodepth=32\nsize=1m\nruntime=1\ntime_based", m)
	w = &r.Jobs[0].Write
	if w.Clat.Max() != 10_000 || w.Slat.N() != 0 {
		t.Errorf("psync: clat max %d, %d slats", w.Clat.Max(), w.Slat.N())
	}
}

// Direct libaio has iodepth requests in flight: 8 of 1 ms each in a millisecond.
func TestLibaioDirect(t *testing.T) {
	m := &memory{cost: time.Millisecond}
	r := runJob(t, "[j]\nrw=randwrite\nnorandommap\ndirect=1\nioengine=libaio\niodepth=8\nsize=1m\nruntime=1\ntime_based", asDirect{m})
	noError(t, r)
	w := &r.Jobs[0].Write
	if w.IOs != 8000 || w.Clat.Max() != 1_000_000 {
		t.Errorf("%d writes, clat max %d", w.IOs, w.Clat.Max())
	}
	if r.Jobs[0].Depth[3] < 7900 {
		t.Errorf("depth table %v", r.Jobs[0].Depth)
	}
	jf, err := Parse("x", strings.NewReader("[j]\nrw=write\nsize=4k\ndirect=1"))
	simulate(t, func(task *sched.Task) {
		_, err = Run(task, jf, Options{Open: func(*sched.Task, *Job, string) (Target, error) { return m, nil }})
	})
	if err == nil || !strings.Contains(err.Error(), "does not support direct=1") {
		t.Errorf("direct on a buffered target: %v", err)
	}
}

// TestSyncOptions: fdatasync=N counts writes as fsync=N does, and both for themselves, as fio's
// get_rw_ddir(). sync= makes every write one that is durable when it ends, whichever engine it goes
// through; a target without such writes refuses it.
func TestSyncOptions(t *testing.T) {
	m := &memory{cost: time.Millisecond}
	r := runJob(t, "[a]\nrw=write\nsize=1m\nnumber_ios=10\nfdatasync=4\nfsync=3", m)
	noError(t, r)
	// after writes 3, 4, 6, 8, 9
	if a := r.Jobs[0]; a.Write.IOs != 10 || m.fsyncs != 5 || a.Sync.N() != 5 {
		t.Errorf("fdatasync=4 and fsync=3: %d writes, %d fsyncs, %d measured", a.Write.IOs, m.fsyncs, a.Sync.N())
	}
	for _, engine := range []string{"psync", "libaio", "io_uring"} {
		m = &memory{cost: time.Millisecond}
		r = runJob(t, "[a]\nrw=write\nsize=1m\nnumber_ios=10\nsync=dsync\nioengine="+engine, asDirect{m})
		noError(t, r)
		if n := m.synced.Load(); n != 10 {
			t.Errorf("sync=dsync, %s: %d of 10 writes asked to be durable", engine, n)
		}
	}
	r = runJob(t, "[a]\nrw=write\nsize=1m\nnumber_ios=1\nsync=1", &memory{})
	if _, text, _ := r.FirstError(); !strings.Contains(text, "does not support sync=1") {
		t.Errorf("sync=1 on a target without it: %q", text)
	}
}

func TestRateTimeAndCounts(t *testing.T) {
	m := &memory{cost: 100 * time.Microsecond}
	r := runJob(t, "[j]\nrw=randwrite\nnorandommap\nrate_iops=200\nsize=1m\nruntime=3\ntime_based\nioengine=libaio\niodepth=4", m)
	noError(t, r)
	if w := r.Jobs[0].Write; w.IOs != 600 || w.RunNs != 3e9 || w.Clat.Max() > 1_000_000 {
		t.Errorf("rate_iops=200 for 3 s: %d writes in %d ns, clat max %d", w.IOs, w.RunNs, w.Clat.Max())
	}
	m = &memory{cost: time.Millisecond}
	r = runJob(t, "[a]\nrw=write\nsize=1m\nnumber_ios=10\nfsync=3\nend_fsync=1\n[b]\nstonewall\nrw=read\nsize=64k\nruntime=2", m)
	noError(t, r)
	if a := r.Jobs[0]; a.Write.IOs != 10 || m.fsyncs != 4 || a.Sync.N() != 4 || a.GroupID != 0 {
		t.Errorf("a: %d writes, %d fsyncs, %d measured", a.Write.IOs, m.fsyncs, a.Sync.N())
	}
	if b := r.Jobs[1]; b.Read.IOs != 16 || b.Write.IOs != 0 || b.Read.RunNs != 16e6 || b.GroupID != 1 {
		t.Errorf("b: %d reads in %d ns, group %d", b.Read.IOs, b.Read.RunNs, b.GroupID)
	}
	last := int64(0)
	for _, io := range m.log {
		if !io.write && strings.HasPrefix(io.task, "b") {
			if last == 0 {
				last = io.at
			}
		} else if last != 0 && io.task[0] == 'a' {
			t.Fatal("job a runs after the stonewall")
		}
	}
}

// ramp_time is run and not measured: slow requests in it leave no trace.
func TestRampTime(t *testing.T) {
	for _, engine := range []string{"psync", "libaio"} {
		m := &memory{cost: 10 * time.Microsecond}
		m.fail = func(bool, int64) error {
			if len(m.log) == 3000 {
				m.cost = time.Millisecond
			}
			return nil
		}
		m.cost = 100 * time.Microsecond // the first 3000 writes take 300 ms
		r := runJob(t, "[j]\nrw=randwrite\nnorandommap\nsize=1m\nruntime=1\nramp_time=500ms\ntime_based\niodepth=4\nioengine="+engine, m)
		noError(t, r)
		w := &r.Jobs[0].Write
		if w.IOs < 998 || w.IOs > 1003 || w.RunNs != 1e9 || w.Bytes != 4096*w.IOs {
			t.Errorf("%s: %d writes in %d ns", engine, w.IOs, w.RunNs)
		}
		if h := &w.Lat; h.Min() < 1e6 || h.N() < w.IOs {
			t.Errorf("%s: lat min %d of %d", engine, h.Min(), h.N())
		}
		// Requests that were submitted in ramp_time and ended after it count when they end.
		if n := r.Jobs[0].Submit[1]; n > w.IOs || engine == "psync" && n != w.IOs || n+3 < w.IOs {
			t.Errorf("%s: %d submitted, %d done", engine, n, w.IOs)
		}
	}
}

// A request that takes longer than ramp_time and the run time together leaves a worker with what it
// has in flight, and no time: the rate of those requests is by the time that was to be measured,
// not by the moment in which they are reaped.
func TestRampTimeMissed(t *testing.T) {
	// the second one ends while the run goes on
	for cost, want := range map[time.Duration]int64{2 * time.Second: 1.5e9, 1200 * time.Millisecond: 1.9e9} {
		m := &memory{cost: cost}
		r := runJob(t, "[j]\nrw=randwrite\nnorandommap\nsize=1m\nruntime=1\nramp_time=500ms\ntime_based\niodepth=4\nioengine=libaio", m)
		noError(t, r)
		if w := &r.Jobs[0].Write; w.IOs == 0 || w.RunNs != want || w.IOPS() > 4 {
			t.Errorf("requests of %v: %d writes in %d ns, %g iops, want %d ns", cost, w.IOs, w.RunNs, w.IOPS(), want)
		}
	}
}

func TestMixAndSplit(t *testing.T) {
	m := &memory{}
	r := runJob(t, "[j]\nrw=randrw\nrwmixread=70\nsize=8m\nnorandommap\nbssplit=4k/60:16k/40,8k\nio_size=64m", m)
	noError(t, r)
	j := r.Jobs[0]
	share := float64(j.Read.IOs) / float64(j.Read.IOs+j.Write.IOs)
	if math.Abs(share-0.70) > 0.02 {
		t.Errorf("reads are %.3f of requests", share)
	}
	n := map[int]int{}
	for _, io := range m.log {
		if io.task == "j.0" && !io.write {
			n[io.n]++
		} else if io.task == "j.0" && io.n != 8192 && io.n != 4096 { // 4096: the region's end
			t.Fatalf("write of %d", io.n)
		}
	}
	if s := float64(n[4096]) / float64(n[4096]+n[16384]); math.Abs(s-0.6) > 0.03 {
		t.Errorf("4k is %.3f of reads: %v", s, n)
	}
	if total := j.Read.Bytes + j.Write.Bytes; total != 64<<20 {
		t.Errorf("moved %d bytes, want io_size", total)
	}
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		job    string
		falloc []uint32
		size   int64
	}{
		{"rw=randwrite\nsize=64k\nnumber_ios=1", []uint32{0}, 64 << 10},
		{"rw=write\nsize=64k\nnumber_ios=1\nfallocate=keep", []uint32{1}, 4096},
		{"rw=write\nsize=64k\nnumber_ios=1\nfallocate=none", nil, 4096},
		{"rw=write\nsize=64k\nnumber_ios=1\nfallocate=truncate", nil, 64 << 10},
		{"rw=randread\nsize=64k\nnumber_ios=1\nfallocate=none", nil, 64 << 10},
		{"rw=write\nsize=8k\noffset=8k\nfilesize=1m", []uint32{0}, 1 << 20},
	} {
		m := &memory{}
		noError(t, runJob(t, "[j]\n"+c.job, m))
		if fmt.Sprint(m.falloc) != fmt.Sprint(c.falloc) || m.size != c.size {
			t.Errorf("%q: fallocate %v size %d, want %v %d", c.job, m.falloc, m.size, c.falloc, c.size)
		}
	}
}

// TestInvalidate: what the jobs of a wave are going to use is dropped from the cache once for each
// of them, after the layout and before the first of them reads or writes; invalidate=0 keeps it.
func TestInvalidate(t *testing.T) {
	const jobs = "[a]\nfilename=f\nrw=randread\nsize=64k\nnumber_ios=3\nnumjobs=2\noffset=4k\nend_fsync=1\n[b]\nfilename=f\nstonewall\nrw=read\nsize=8k\n"
	for _, c := range []struct {
		job  string
		want string
	}{
		{jobs, "[4096+65536 after 1 IOs 4096+65536 after 1 IOs 0+8192 after 7 IOs]"},
		{jobs + "invalidate=0\n", "[4096+65536 after 1 IOs 4096+65536 after 1 IOs]"},
		{"[global]\ninvalidate=0\n" + jobs, "[]"},
	} {
		m := &memory{}
		noError(t, runJob(t, c.job, m))
		if have := fmt.Sprint(m.dropped); have != c.want {
			t.Errorf("%q:\nhave %s\nwant %s", c.job, have, c.want)
		}
	}
}

// verify=crc32c passes on an honest target, and names the block when one bit of it changes, when a
// write is lost, and when it goes to another place.
func TestVerify(t *testing.T) {
	const job = "[j]\nrw=randwrite\nnorandommap\nsize=256k\nio_size=1m\nverify=crc32c\nbssplit=4k/50:8k/50"
	m := &memory{}
	r := runJob(t, job, m)
	noError(t, r)
	if j := r.Jobs[0]; j.Read.IOs == 0 || j.VerifyErrors != 0 {
		t.Fatalf("%d verify reads, %d errors", j.Read.IOs, j.VerifyErrors)
	}
	for _, c := range []struct{ name, want string }{{"flip", "bad crc32c"}, {"lost", "bad write"}, {"misplaced", "bad offset"}} {
		var target Target = &liar{memory: &memory{}, kind: c.name}
		r := runJob(t, job, target)
		_, text, no := r.FirstError()
		if no != int(syscall.EILSEQ) || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q (%d), want %q", c.name, text, no, c.want)
		}
	}
	// A file with two writers has blocks of either.
	noError(t, runJob(t, "[j]\nrw=randwrite\nnorandommap\nsize=64k\nio_size=1m\nverify=crc32c\nfilename=f\nnumjobs=2", &memory{}))
	// A reader checks what a writer left, and dislikes what nobody wrote.
	m = &memory{}
	noError(t, runJob(t, "[w]\nrw=write\nsize=64k\nverify=crc32c\nfilename=f\n[r]\nstonewall\nrw=read\nsize=64k\nverify=crc32c\nfilename=f", m))
	r = runJob(t, "[r]\nrw=read\nsize=64k\nverify=crc32c\nfilename=f", &memory{})
	if _, text, _ := r.FirstError(); !strings.Contains(text, "bad magic") {
		t.Errorf("reading random bytes: %q", text)
	}
}

// liar is a memory that does wrong to the last write of the job, the 1 MiB that io_size allows.
type liar struct {
	*memory
	kind string
	done int
}

func (l *liar) WriteAt(t *sched.Task, p []byte, off int64) (int, error) {
	l.done += len(p)
	if l.done < 1<<20 {
		return l.memory.WriteAt(t, p, off)
	}
	switch l.kind {
	case "flip":
		q := append([]byte(nil), p...)
		q[len(q)-1] ^= 1
		return l.memory.WriteAt(t, q, off)
	case "misplaced":
		l.memory.WriteAt(t, p, (off+128<<10)%(256<<10))
		return l.memory.WriteAt(t, p, off)
	}
	return len(p), nil // lost
}

func TestErrorEndsTask(t *testing.T) {
	m := &memory{fail: func(write bool, off int64) error {
		if write && off == 32<<10 {
			return syscall.ENOSPC
		}
		return nil
	}}
	r := runJob(t, "[j]\nrw=write\nsize=64k", m)
	if _, text, no := r.FirstError(); no != int(syscall.ENOSPC) || r.Jobs[0].Write.IOs != 8 {
		t.Errorf("%q (%d) after %d writes", text, no, r.Jobs[0].Write.IOs)
	}
}

func TestStopAndProgress(t *testing.T) {
	var stop atomic.Bool
	calls := 0
	m := &memory{cost: time.Millisecond}
	r := runJob(t, "[j]\nrw=randwrite\nsize=1m\nruntime=60\ntime_based\nnumjobs=2\nfilename=f\ngroup_reporting", m, func(o *Options) {
		o.Stop = &stop
		o.Progress = func(p Progress) {
			if calls++; calls == 5 {
				stop.Store(true)
			}
			if p.Fraction <= 0 || p.Fraction > 1 || p.IOs == 0 {
				t.Errorf("progress %+v", p)
			}
		}
	})
	noError(t, r)
	if calls != 5 || len(r.Jobs) != 1 || r.Jobs[0].Tasks != 2 || r.Jobs[0].Write.IOs > 1100 {
		t.Errorf("%d calls, %d jobs, %d writes", calls, len(r.Jobs), r.Jobs[0].Write.IOs)
	}
	if s := r.Jobs[0].Write.IOPSSamp; s.N != 2 || s.Mean() < 1900 || s.Mean() > 2100 {
		t.Errorf("iops samples %+v", s) // one half second each: 1000 and 1000
	}
}

func TestBlockMap(t *testing.T) {
	for _, n := range []uint64{1, 63, 64, 65, 4096, 4097, 300_000} {
		m := newBlockMap(n)
		rnd := random(n)
		seen := make([]bool, n)
		for i := uint64(0); i < n; i++ {
			b, ok := m.free(rnd.below(n))
			if !ok || b >= n || seen[b] {
				t.Fatalf("n=%d: block %d at step %d, ok %v", n, b, i, ok)
			}
			seen[b] = true
			m.set(b)
		}
		if b, ok := m.free(0); ok {
			t.Fatalf("n=%d: block %d left", n, b)
		}
		m.reset()
		if b, ok := m.free(n - 1); !ok || b != n-1 {
			t.Fatalf("n=%d: after reset %d %v", n, b, ok)
		}
	}
}

// inline is a memory whose requests with NOWAIT never wait.
type inline struct{ *memory }

func (m inline) Modes() kiocb.Modes { return kiocb.ModeNowait | kiocb.ModeBufferWAsync }
func (m inline) Ino() format.Ino    { return 257 }

func (m inline) ReadIter(t *sched.Task, rq kiocb.Request, p []byte) (int, error) {
	return m.ReadAt(t, p, int64(rq.Pos))
}

func (m inline) WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	return m.WriteAt(t, src.Buf, int64(rq.Pos))
}

// BenchmarkOverhead is what the runner and the engine add to one request: its target does nothing.
func BenchmarkOverhead(b *testing.B) {
	for _, engine := range []string{"psync", "libaio", "io_uring"} {
		b.Run(engine, func(b *testing.B) {
			sched.SetChecked(false)
			defer sched.SetChecked(true)
			jf, err := Parse("b", strings.NewReader(fmt.Sprintf("[j]\nrw=randwrite\nnorandommap\nioengine=%s\niodepth=1\nsize=256m\nio_size=%d", engine, int64(b.N)*4096)))
			if err != nil {
				b.Fatal(err)
			}
			m := &memory{quiet: true}
			b.ReportAllocs()
			b.ResetTimer()
			r, err := Run(sched.NewTask("bench"), jf, Options{Open: func(*sched.Task, *Job, string) (Target, error) { return inline{m}, nil }})
			if err != nil || r.Jobs[0].Write.IOs != uint64(b.N) {
				b.Fatal(err, r.Jobs[0].Write.IOs)
			}
		})
	}
}

// slowOnce is a memory whose tenth write takes 50 ms.
type slowOnce struct {
	*memory
	n int
}

func (m *slowOnce) WriteAt(t *sched.Task, p []byte, off int64) (int, error) {
	if m.n++; m.n == 10 {
		t.Sleep(50 * time.Millisecond)
	}
	return m.memory.WriteAt(t, p, off)
}

// A rate is kept over the whole run: what a slow request delays is issued after it without pauses.
func TestRateCatchesUp(t *testing.T) {
	jf, err := Parse("x", strings.NewReader("[j]\nrw=write\nrate_iops=100\nsize=1m\nruntime=1\ntime_based"))
	if err != nil {
		t.Fatal(err)
	}
	m := &slowOnce{memory: &memory{cost: time.Microsecond}}
	simulate(t, func(task *sched.Task) {
		r, err := Run(task, jf, Options{Open: func(*sched.Task, *Job, string) (Target, error) { return m, nil }})
		if err != nil {
			t.Error(err)
			return
		}
		if w := r.Jobs[0].Write; w.IOs != 100 {
			t.Errorf("%d writes in a second at 100 a second", w.IOs)
		}
	})
}
