package experiment

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

var testClass = lockdep.NewTestClass("test_lock", "i_rwsem")

// fakeLab is a file in memory; under policy "locked" every write takes one lock. Its wrong field
// plants a fault in one write of the run.
type fakeLab struct {
	data    []byte
	mu      sync.Mutex
	lock    lock.Mutex
	wrong   string
	faults  atomic.Int64 // planted
	check   []string
	opened  []string
	session bool
	atWrite func(n int64)
	writes  atomic.Int64
}

func (l *fakeLab) Prepare(t *sched.Task, size int64) error {
	l.lock.Init(testClass)
	l.data = make([]byte, size)
	return nil
}

func (l *fakeLab) Open(t *sched.Task, policy string) (Session, error) {
	if l.session {
		return nil, fmt.Errorf("open twice")
	}
	l.session = true
	l.opened = append(l.opened, policy)
	return &fakeSession{l, policy}, nil
}

func (l *fakeLab) Check(t *sched.Task) ([]string, error) {
	if l.session {
		return nil, fmt.Errorf("checked while open")
	}
	return l.check, nil
}

type fakeSession struct {
	l      *fakeLab
	policy string
}

func (s *fakeSession) File() fio.Target                         { return s }
func (s *fakeSession) Close(t *sched.Task) error                { s.l.session = false; return nil }
func (s *fakeSession) Size(*sched.Task) int64                   { return int64(len(s.l.data)) }
func (s *fakeSession) Fsync(t *sched.Task) error                { return nil }
func (s *fakeSession) Truncate(t *sched.Task, size int64) error { panic("truncate") }
func (s *fakeSession) Fallocate(t *sched.Task, mode uint32, off, n int64) error {
	panic("fallocate")
}

func (s *fakeSession) ReadAt(t *sched.Task, p []byte, off int64) (int, error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return copy(p, s.l.data[off:]), nil
}

func (s *fakeSession) WriteAt(t *sched.Task, p []byte, off int64) (int, error) {
	l := s.l
	if s.policy == "locked" {
		l.lock.Lock(t)
		defer l.lock.Unlock(t)
	}
	n := l.writes.Add(1)
	if l.atWrite != nil {
		l.atWrite(n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if off == 8*blockSize && l.wrong == "misplaced" && len(p) == blockSize {
		return len(p), nil // what was meant for block 7 stays there
	}
	old := l.data[off : off+blockSize]
	// The fault goes into the first write of block 7 by the job: its stamp is not the filler's.
	if off == 7*blockSize && len(p) == blockSize && stamp(binary.LittleEndian.Uint64(p)).writer() != fillWriter {
		fresh := stamp(binary.LittleEndian.Uint64(old)).run() != stamp(binary.LittleEndian.Uint64(p)).run()
		switch l.wrong {
		case "torn":
			l.faults.Add(1)
			copy(l.data[off:], p[:lineSize*20])
			return len(p), nil
		case "lost":
			l.faults.Add(1)
			return len(p), nil
		case "stale":
			if !fresh {
				l.faults.Add(1)
				return len(p), nil
			}
		case "misplaced":
			l.faults.Add(1)
			copy(l.data[off+blockSize:], p)
		case "corrupt":
			l.faults.Add(1)
			copy(l.data[off:], p)
			l.data[off+lineSize*3+33] ^= 4
			return len(p), nil
		case "foreign":
			l.faults.Add(1)
			q := append([]byte(nil), p...)
			mine := stamp(binary.LittleEndian.Uint64(p))
			seal(q, makeStamp(mine.run(), mine.writer(), 1<<30), off)
			copy(l.data[off:], q)
			return len(p), nil
		}
	}
	return copy(l.data[off:], p), nil
}

func testJob(t *testing.T, more string) *fio.JobFile {
	t.Helper()
	jf, err := fio.Parse("dir/test.fio", strings.NewReader("[global]\nthread\nnorandommap\ngroup_reporting\n[j]\nrw=randwrite\nsize=128k\nio_size=2m\nnumjobs=4\nioengine=libaio\niodepth=8\nfilename=/any\n"+more))
	if err != nil {
		t.Fatal(err)
	}
	return jf
}

func TestCompare(t *testing.T) {
	l := &fakeLab{}
	var fractions []float64
	r, err := Compare(sched.NewTask("test"), l, Options{Job: testJob(t, ""), Policies: []string{"free", "locked"}, Rounds: 3, Device: "memory", Model: "none",
		Progress: func(p Progress) { fractions = append(fractions, p.Fraction) }})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || r.Rounds != 3 || r.Baseline != "locked" || len(r.Rows) != 2 {
		t.Errorf("%+v", r)
	}
	for _, row := range r.Rows {
		if len(row.RoundIOPS) != 3 || row.IOPS <= 0 || row.Hist.N() != 3*4*512 || row.Clat.P50 > row.Clat.P99 || row.Clat.P999 > row.Clat.Max || row.RatioMin > row.Ratio || row.Ratio > row.RatioMax {
			t.Errorf("%+v", row)
		}
		for c, v := range row.Waits {
			if c != "test_lock" || v < 0 || v > 1 || row.Policy == "free" {
				t.Errorf("%s waits for %s: %f", row.Policy, c, v)
			}
		}
	}
	if b := r.Rows[1]; b.Ratio != 1 || b.RatioMin != 1 || b.RatioMax != 1 {
		t.Errorf("the baseline's ratio is %f", b.Ratio)
	}
	// Each run opens twice, to work and to read back; the order of the policies changes with the
	// round.
	if got := strings.Join(l.opened, " "); got != "free free free locked locked locked locked free free free free locked locked" {
		t.Error(got)
	}
	if !sort.Float64sAreSorted(fractions) || fractions[len(fractions)-1] > 1 {
		t.Errorf("progress %v", fractions)
	}

	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	keys := func(m any) string {
		var k []string
		for n := range m.(map[string]any) {
			k = append(k, n)
		}
		sort.Strings(k)
		return strings.Join(k, " ")
	}
	row := v["rows"].([]any)[0]
	for _, c := range [][2]string{{keys(v), "device job model rounds rows runtime"}, {keys(row), "check clat_ns content iops policy ratio ratio_ci95 ratio_max ratio_min waits"},
		{keys(row.(map[string]any)["clat_ns"]), "max mean p50 p99 p999"}} {
		if c[0] != c[1] {
			t.Errorf("JSON keys %q, want %q", c[0], c[1])
		}
	}
	b.Reset()
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "ratio is of iops to") || strings.Contains(b.String(), "WRONG") {
		t.Errorf("%v\n%s", err, b.String())
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns, want 80 at most: %s", n, line)
		}
	}
}

// Every kind of wrong block is found, and named for what it is. The control is TestCompare.
func TestContentFindsMutants(t *testing.T) {
	for _, kind := range []string{"torn", "lost", "stale", "misplaced", "corrupt", "foreign"} {
		l := &fakeLab{wrong: kind}
		r, err := Compare(sched.NewTask("test"), l, Options{Job: testJob(t, "numjobs=2"), Policies: []string{"free"}, Rounds: 1})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if l.faults.Load() == 0 {
			t.Fatalf("%s: the fault was never planted", kind)
		}
		want := " " + kind + " block"
		if r.OK() || !strings.Contains(r.Rows[0].Content, want) {
			t.Errorf("%s: content %q", kind, r.Rows[0].Content)
		}
	}
}

// A block that nobody wrote in this run must hold what it held before.
func TestContentUnwritten(t *testing.T) {
	c := newContent(4*blockSize, blockSize)
	l := &fakeLab{}
	task := sched.NewTask("test")
	l.Prepare(task, 4*blockSize)
	s, _ := l.Open(task, "free")
	if err := c.fill(task, s.File(), func(float64) error { return nil }); err != nil {
		t.Fatal(err)
	}
	c.begin(1)
	w := c.newWriter()
	p := make([]byte, 2*blockSize)
	n := w.Stamp(p, blockSize)
	s.File().WriteAt(task, p, blockSize)
	w.Done(n, 10, 20, nil)
	judge := func() string {
		f, err := c.judge(task, s.File())
		if err != nil {
			t.Fatal(err)
		}
		return f.String()
	}
	if got := judge(); got != "ok" {
		t.Fatal(got)
	}
	// Run 2 writes block 0 only. What it makes of block 1 is wrong, and what it leaves of block 2
	// is right.
	c.begin(2)
	w = c.newWriter()
	q := make([]byte, blockSize)
	n = w.Stamp(q, 0)
	s.File().WriteAt(task, q, 0)
	w.Done(n, 30, 40, nil)
	seal(l.data[blockSize:2*blockSize], makeStamp(0, fillWriter, 1), blockSize)
	for i := 0; i < blockSize; i += lineSize { // the filler's bytes under its stamp
		copy(l.data[blockSize+i+8:blockSize+i+lineSize], c.pattern(fillWriter)[i+8:i+lineSize])
	}
	seal(l.data[blockSize:2*blockSize], makeStamp(0, fillWriter, 1), blockSize)
	if got := judge(); !strings.HasPrefix(got, "1 changed block, first at 4096: run 0 writer 255 write 1, nobody wrote it in run 2") {
		t.Error(got)
	}
}

// The rule for two writes of one block: concurrent writes may end in either order, ordered ones may
// not.
func TestContentOrder(t *testing.T) {
	for _, c := range []struct {
		a, b [2]int64 // start and end
		wins int
		want string
	}{
		{[2]int64{10, 20}, [2]int64{15, 30}, 0, "ok"},
		{[2]int64{10, 20}, [2]int64{15, 30}, 1, "ok"},
		{[2]int64{10, 20}, [2]int64{21, 30}, 1, "ok"},
		{[2]int64{10, 20}, [2]int64{21, 30}, 0, "1 stale"},
		{[2]int64{10, 40}, [2]int64{20, 30}, 1, "ok"},
		{[2]int64{10, 40}, [2]int64{20, 30}, 0, "ok"},
	} {
		x := newContent(blockSize, blockSize)
		l := &fakeLab{data: make([]byte, blockSize)}
		task := sched.NewTask("test")
		s := &fakeSession{l, "free"}
		x.begin(1)
		var buf [2][]byte
		for i, at := range [][2]int64{c.a, c.b} {
			w := x.newWriter()
			buf[i] = make([]byte, blockSize)
			w.Done(w.Stamp(buf[i], 0), at[0], at[1], nil)
		}
		copy(l.data, buf[c.wins])
		f, err := x.judge(task, s)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(f.String(), c.want) {
			t.Errorf("%v: %s, want %s", c, f, c.want)
		}
	}
}

func TestCheckFindingsAndErrors(t *testing.T) {
	l := &fakeLab{check: []string{"leaf: bad", "more"}}
	task := sched.NewTask("test")
	r, err := Compare(task, l, Options{Job: testJob(t, ""), Policies: []string{"free"}, Rounds: 1})
	if err != nil || r.OK() || r.Rows[0].Check != "round 1: leaf: bad (and 1 more)" {
		t.Errorf("%v %+v", err, r.Rows[0])
	}
	for more, want := range map[string]string{"bs=100": "multiples of 512", "verify=crc32c": "leave verify out", "numjobs=300": "tells apart"} {
		if _, err := Compare(task, l, Options{Job: testJob(t, more), Policies: []string{"free"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// A variant is the job with other options under a policy; its row has its name, and ratios are to
// the baseline by name.
func TestVariants(t *testing.T) {
	l := &fakeLab{}
	r, err := Compare(sched.NewTask("test"), l, Options{Job: testJob(t, ""), Rounds: 2, Baseline: "b", Pairs: [][2]string{{"a", "c"}}, Variants: []Variant{
		{Name: "a", Policy: "free", About: "first", Published: 300},
		{Name: "b", Policy: "locked", Set: [][2]string{{"number_ios", "5"}}, Published: 100},
		{Name: "c", Policy: "free", Set: [][2]string{{"force_async", "1"}, {"ioengine", "io_uring"}}, Published: 100},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || r.Baseline != "b" || len(r.Rows) != 3 || r.Rows[1].Ratio != 1 || r.Rows[0].About != "first" || r.Rows[0].Published != 300 || r.Pairs[0].Published != 3 {
		t.Errorf("%+v, pairs %+v", r, r.Pairs)
	}
	// run and read back, twice
	if have := strings.Join(l.opened, " "); strings.Count(have, "locked") != 4 {
		t.Errorf("policies opened: %s", have)
	}
	if n := r.Rows[1].Hist.N(); n == 0 || n >= r.Rows[0].Hist.N() {
		t.Errorf("row b has %d latencies, row a %d, want fewer", n, r.Rows[0].Hist.N())
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "a: first; published 300 iops\n") || !strings.Contains(b.String(), ", published 3.00\n") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	if _, err := Compare(sched.NewTask("test"), l, Options{Job: testJob(t, ""), Variants: []Variant{{Name: "a", Policy: "free", Set: [][2]string{{"force_async", "1"}}}}}); err == nil ||
		!strings.HasPrefix(err.Error(), "row a: job ") {
		t.Errorf("a row whose options do not go together: %v", err)
	}
}

// Another rig's row is the job with options of its own, opened under the name that the rig knows. A
// ring says which way its requests went.
func TestOtherRows(t *testing.T) {
	l, o := &fakeLab{}, &fakeLab{}
	r, err := Compare(sched.NewTask("test"), l, Options{Job: testJob(t, ""), Rounds: 2, Policies: []string{"free"}, Others: []Other{
		{Name: "x", About: "plain", Open: "locked", Rig: o},
		{Name: "x-ring", Rig: o, Set: [][2]string{{"ioengine", "io_uring"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || len(r.Rows) != 3 || r.Rows[1].Policy != "x" || r.Rows[1].About != "plain" || r.Rows[0].Ring != nil || r.Rows[1].Ring != nil {
		t.Fatalf("%+v", r)
	}
	if have := strings.Join(o.opened, " "); strings.Count(have, "locked") < 2 || strings.Count(have, "x-ring") < 2 || strings.Contains(have, "x ") {
		t.Errorf("opened: %s", have)
	}
	ring := r.Rows[2].Ring
	// the target takes no NOWAIT
	if ring == nil || ring.Submitted == 0 || ring.Punted != ring.Submitted || ring.Inline != 0 || ring.Workers == 0 {
		t.Fatalf("ring %+v", ring)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "\nx-ring: "+fmt.Sprint(ring.Submitted)+" requests: 0 inline") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	b.Reset()
	if err := r.WriteJSON(&b); err != nil || strings.Count(b.String(), `"punted"`) != 1 {
		t.Errorf("%v:\n%s", err, b.String())
	}
	bad := []Other{{Name: "x", Rig: o, Set: [][2]string{{"force_async", "1"}}}}
	if _, err := Compare(sched.NewTask("test"), l, Options{Job: testJob(t, ""), Policies: []string{"free"}, Others: bad}); err == nil || !strings.HasPrefix(err.Error(), "row x: job ") {
		t.Errorf("a row whose options do not go together: %v", err)
	}
}

func TestStop(t *testing.T) {
	var stop atomic.Bool
	l := &fakeLab{}
	l.atWrite = func(n int64) {
		if n == 3000 {
			stop.Store(true)
		}
	}
	r, err := Compare(sched.NewTask("test"), l, Options{Job: testJob(t, ""), Policies: []string{"a", "b"}, Rounds: 5, Stop: &stop})
	if err != nil || r.Rounds != 0 || l.session || !r.OK() || len(r.Rows) != 1 || r.Rows[0].Policy != "a" {
		t.Errorf("%v %+v", err, r)
	}
	// A row whose run has ended is shown, one whose run has not is not.
	stop.Store(false)
	runs := 0
	step := func(p Progress) {
		if p.Step == "run" && p.IOs == 0 {
			runs++
		}
		if runs == 2 {
			stop.Store(true)
		}
	}
	r, err = Compare(sched.NewTask("test"), &fakeLab{}, Options{Job: testJob(t, ""), Policies: []string{"a", "b", "c"}, Rounds: 5, Stop: &stop, Progress: step})
	if err != nil || r.Rounds != 0 || len(r.Rows) != 1 || r.Rows[0].Policy != "a" || r.Rows[0].IOPS == 0 {
		t.Errorf("%v %+v", err, r)
	}
}

func BenchmarkStamp(b *testing.B) {
	c := newContent(1<<20, blockSize)
	c.begin(1)
	w := c.newWriter()
	p := make([]byte, blockSize)
	b.ReportAllocs()
	for range b.N {
		w.Done(w.Stamp(p, 4096), 1, 2, nil)
		if w.seq%(8*logChunk) == 0 {
			c.begin(1)
			w = c.newWriter()
		}
	}
}

// A ratio is that of two runs of one round, since whatever drifts between rounds drifts for both;
// the row has the median of them. A run that was stopped counts for nothing.
func TestStatistics(t *testing.T) {
	var stop atomic.Bool
	opt := &Options{Stop: &stop}
	base, other := &rowSum{Variant: Variant{Name: "locked"}, clat: new(stats.Hist)}, &rowSum{Variant: Variant{Name: "free"}, clat: new(stats.Hist)}
	for round, iops := range [][2]uint64{{100, 110}, {200, 400}, {400, 200}, {300, 600}, {1000, 1}} {
		stop.Store(round == 4)
		for i, s := range []*rowSum{base, other} {
			s.add(&run{opt: opt, round: round + 1}, &stats.Run{Jobs: []*stats.Job{{Write: stats.Dir{IOs: iops[i], RunNs: 1e9}}}}, &findings{}, nil)
		}
	}
	res := &Result{Baseline: "locked"}
	res.finish([]*rowSum{base, other}, [][2]string{{"locked", "free"}})
	for i, want := range [][4]float64{{250, 1, 1, 1}, {300, 1.55, 0.5, 2}} {
		r := res.Rows[i]
		if have := [4]float64{r.IOPS, r.Ratio, r.RatioMin, r.RatioMax}; have != want || len(r.RoundIOPS) != 4 {
			t.Errorf("%s: iops, ratio, min and max are %v, want %v; rounds %v", r.Policy, have, want, r.RoundIOPS)
		}
	}
	// 1/1.1, 1/2, 2 and 1/2: a pair is compared round by round as well.
	if p := res.Pairs; len(p) != 1 || p[0].Row != "locked" || p[0].To != "free" || p[0].RatioMin != 0.5 || p[0].RatioMax != 2 || math.Abs(p[0].Ratio-(0.5+1/1.1)/2) > 1e-9 {
		t.Errorf("pairs %+v", p)
	}
}

// A block is torn wherever the second write begins or ends in it.
func TestTornAnywhere(t *testing.T) {
	for _, size := range []int{minBlock, 2048, blockSize} {
		c := newContent(4*blockSize, size)
		c.begin(1)
		w := c.newWriter()
		block := make([]byte, size)
		w.Done(w.Stamp(block, 0), 1, 2, nil)
		for i := range c.lastStart {
			c.lastStart[i] = 1
		}
		out := &findings{}
		if s := c.judgeBlock(block, 0, out); s == unknown || out.String() != "ok" {
			t.Fatalf("the whole block: %v, %s", s, out)
		}
		for l := range size / lineSize {
			out := &findings{}
			p := bytes.Clone(block)
			binary.LittleEndian.PutUint64(p[l*lineSize:], uint64(makeStamp(1, 0, 7)))
			if s := c.judgeBlock(p, 0, out); s != unknown || !strings.HasPrefix(out.String(), "1 torn block, first at 0: ") {
				t.Errorf("%d bytes, line %d of another write: %v, %s", size, l, s, out)
			}
		}
	}
}

// again is a session that counts its refusals.
type again struct{ *fakeSession }

func (again) Again() (uint64, uint64) { return 3, 12 }

type againLab struct{ fakeLab }

func (l *againLab) Open(t *sched.Task, name string) (Session, error) {
	s, err := l.fakeLab.Open(t, name)
	if err != nil || name != "kernel-nowait" {
		return s, err
	}
	return again{s.(*fakeSession)}, nil
}

func (l *againLab) Check(t *sched.Task) ([]string, error) { return nil, ErrUnchecked }

// Rows that are not policies run on a rig of their own, whose file is judged by itself; what nobody
// can check is not called clean; and the share of refusals is that of the requests that were not to
// wait.
func TestOthers(t *testing.T) {
	jf, err := fio.Parse("j", strings.NewReader("[j]\nrw=randwrite\nnorandommap\nsize=64k\nnumber_ios=200\nio_size=1g"))
	if err != nil {
		t.Fatal(err)
	}
	mine, other := &fakeLab{}, &againLab{}
	for _, wrong := range []string{"", "lost"} {
		other.wrong = wrong
		r, err := Compare(sched.NewTask("test"), mine, Options{Job: jf, Policies: []string{"locked"}, Rounds: 2,
			Others: []Other{{Name: "kernel", Rig: other}, {Name: "kernel-nowait", Rig: other}}})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 3 || len(mine.opened) == 0 || len(other.opened) == 0 {
			t.Fatalf("%d rows; opened %v and %v", len(r.Rows), mine.opened, other.opened)
		}
		for i, want := range []string{"clean", Unchecked, Unchecked} {
			if r.Rows[i].Check != want || r.Rows[i].IOPS == 0 || len(r.Rows[i].RoundIOPS) != 2 {
				t.Errorf("row %d: check %q want %q, %g iops", i, r.Rows[i].Check, want, r.Rows[i].IOPS)
			}
		}
		if k := r.Rows[2]; k.Again == nil || *k.Again != 0.25 || r.Rows[1].Again != nil || r.Rows[0].Again != nil {
			t.Errorf("shares: %v %v %v, want 0.25 for the last only", r.Rows[0].Again, r.Rows[1].Again, k.Again)
		}
		// What the kernel's writers wait for is not known, which is not nothing.
		if r.Rows[0].Waits == nil || r.Rows[1].Waits != nil || r.Rows[2].Waits != nil {
			t.Errorf("waits %v, %v and %v, want nil for what is not known", r.Rows[0].Waits, r.Rows[1].Waits, r.Rows[2].Waits)
		}
		r.Rows[0].Waits["i_rwsem"] = 0.5
		var text strings.Builder
		r.WriteText(&text)
		for _, line := range []string{"i_rwsem 50.0 - -", "other 0.0 - -", "all waits 50.0 - -"} {
			if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), line) {
				t.Errorf("no %q in\n%s", line, text.String())
			}
		}
		if !strings.Contains(text.String(), "kernel-nowait: RWF_NOWAIT answered EAGAIN to 25.0 % of the requests") {
			t.Errorf("no share in\n%s", text.String())
		}
		if (wrong == "") != r.OK() || r.Rows[0].Content != "ok" || (wrong == "") != (r.Rows[1].Content == "ok") {
			t.Errorf("fault %q: ok %v, contents %q and %q", wrong, r.OK(), r.Rows[0].Content, r.Rows[1].Content)
		}
	}
}

// The table of what requests cost that were tried without waiting: averages of a request, a line
// for each row that has any, and the ratio of bandwidths where those were published.
func TestNowaitCosts(t *testing.T) {
	n := stats.NewNowait()
	n.Tried = 400
	for i, cost := range []string{"page_flushes", "range_waits", "tree_searches", "own_paths", "kept_paths", "leaf_held_steps", "memory_waits", "reserve_flushes"} {
		n.Costs[cost] = int64(400 * (i + 1)) // D0 to D7
	}
	n.Again["nocow_check: busy"], n.Slept["extent in lock_extent"] = 6, 3
	none := func(name string, mib float64) *rowSum {
		return &rowSum{Variant: Variant{Name: name, About: "row " + name, PublishedMiB: mib}, clat: new(stats.Hist), iops: []float64{100}}
	}
	before, after := none("before", 400), none("after", 500)
	before.nowait = n
	res := &Result{Baseline: "before"}
	res.finish([]*rowSum{before, after}, [][2]string{{"after", "before"}})
	if p := res.Pairs[0].Published; p != 1.25 {
		t.Errorf("the published ratio is %g, want 1.25", p)
	}
	if have, want := fmt.Sprint(res.NowaitCosts()), "[[before 1.00 2.00 3.00 4.00 5.00 6.00 7.00 8.00 0.0075 1.50]]"; have != want {
		t.Errorf("have %s want %s", have, want)
	}
	var b strings.Builder
	if err := res.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"before: row before; published 400 MiB/s", "policy D0 D1 D2 D3 D4 D5 D6 D7 slept EAGAIN before 1.00 2.00 3.00 4.00 5.00 6.00 7.00 8.00 0.0075 1.50",
		"before: 6 EAGAIN at nocow_check: busy", "published 1.25"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(text, "after 0.00") {
		t.Errorf("a row without such requests has costs:\n%s", b.String())
	}
}

// The table says of each image in a word what became of it, and fits a terminal of 80 columns with
// the longest names and figures.
func TestImageWord(t *testing.T) {
	res := &Result{Job: "j", Baseline: "unlocked-drain"}
	want := []string{"ok", "ok", "ok", "-", "WRONG", "WRONG"}
	for _, c := range [][2]string{{"ok", "clean"}, {"ok", Unchecked}, {Unverified, "clean"}, {Unverified, Unchecked}, {"block 3 differs", "clean"}, {"ok", "2 found"}} {
		row := &Row{Policy: "unlocked-drain", IOPS: 71785, Versus: stats.Versus{Ratio: 1.55, RatioMin: 1.45, RatioMax: 1.55}, Content: c[0], Check: c[1]}
		row.Clat.Mean, row.Clat.P50, row.Clat.P99, row.Clat.P999, row.Clat.Max = 5.47e6, 55000, 44.3e6, 70.8e6, 86.6e6
		res.Rows = append(res.Rows, row)
	}
	var b strings.Builder
	if err := res.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	var have []string
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSuffix(line, "\n"); len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
		if f := strings.Fields(line); len(f) == 10 && f[0] == "unlocked-drain" {
			have = append(have, f[9])
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("have %q, want %q in\n%s", have, want, &b)
	}
}
