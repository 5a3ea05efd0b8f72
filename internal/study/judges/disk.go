package judges

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/lock"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/sandbox"
	"btrlab/labs/kit"
)

// Disk is lab 16: the flushes of a disk that several connections share.
type Disk struct {
	New     func() kit.Flusher
	Predict func(p kit.SyncProfile, connections int) kit.FlushRates
	*Second

	plant diskFault
}

// diskFault is what is wrong with a served disk, or what a question asks to see.
type diskFault struct {
	wakesOne    bool // Broadcast wakes one
	asCalled    bool // a Sync takes what was answered when its flush was called
	anyOrder    bool // two Syncs end in any order
	sleepsTwice bool // a flush that sleeps again is seen
}

// About says what the lab is.
func (Disk) About() *About {
	return &About{N: 16, Folder: "16-serve-a-disk", Title: "Serve a disk", Minutes: 105, Blind: "a flush has no place: it has a connection, and power-cut has many", File: "disk.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "cmp", "maps", "math", "slices"}, Entry: "New", Shared: true,
			Want: "func New() *Flushes, which has Flush (t *kit.Task, d *kit.Disk) error, func Predict(p kit.SyncProfile, connections int) kit.FlushRates and func Answers() map[string]string"},
			"judges.Disk{New: func() kit.Flusher { return student.New() }, Predict: student.Predict, Second: &judges.Second{Answers: student.Answers}}", sandbox.KitPath),
		Given: []string{"flush-alone", "flush-two", "flush-three", "flush-turns", "fail-alone"}}
}

// What a served disk can do wrong.
const (
	undurable explore.Kind = "durability"
	untold    explore.Kind = "error"
	unshared  explore.Kind = "sharing"
)

// servedDisk is a disk whose cache loses what a Sync did not make durable. Each of its steps is one
// on the object at, so that the explorer tries both orders of any two.
type servedDisk struct {
	of    kit.Flusher
	at    explore.Atomic[int]
	fails []int // the numbers of the Syncs that fail
	// sharers, if not zero, is how many flushes must sleep before the first Sync ends.
	sharers int
	plant   diskFault

	written       []servedWrite // in the order of their answers
	flushes       int           // that were called
	asleep        []bool        // by connection: its flush sleeps
	answers       []string      // by connection, of its last flush; for traces
	begun, ended  int           // Syncs
	failures      int           // of those that have ended
	told, toldMax []int         // failures that a connection was told of: at least, and at most
}

// servedWrite is a write that was answered.
type servedWrite struct {
	connection int
	sync       int // the first Sync that has begun after it; 0 is none yet
	durable    bool
	lostIn     int // the number of the failure by which it was lost; 0 is none
}

func (x *servedWrite) String() string {
	switch {
	case x.durable:
		return "durable"
	case x.lostIn != 0:
		return "lost"
	case x.sync != 0:
		return fmt.Sprint("in Sync ", x.sync)
	}
	return "cached"
}

func (l Disk) served(w *explore.World, connections int) *servedDisk {
	d := &servedDisk{of: l.New(), plant: l.plant, asleep: make([]bool, connections), answers: make([]string, connections), told: make([]int, connections), toldMax: make([]int, connections)}
	d.at.Class = studentClass.ID
	w.Name(&d.at, "the disk")
	w.Watch("writes", func() string {
		var l []string
		for i := range d.written {
			l = append(l, fmt.Sprintf("%d:%v", i, &d.written[i]))
		}
		return cmp.Or(strings.Join(l, " "), "-")
	})
	w.Watch("flushes", func() string {
		var l []string
		for c, a := range d.answers {
			if a != "" {
				l = append(l, fmt.Sprintf("%d:%s", c, a))
			}
		}
		return cmp.Or(strings.Join(l, " "), "-")
	})
	return d
}

// step does f in one step of t.
func (d *servedDisk) step(t *sched.Task, f func()) {
	d.at.Update(t, func(n int) int { f(); return n + 1 })
}

// write is a write of a connection with its answer.
func (d *servedDisk) write(t *sched.Task, c int) {
	d.step(t, func() { d.written = append(d.written, servedWrite{connection: c}) })
}

// flush is a flush of a connection. What its answer promises is judged in the step of the answer.
func (d *servedDisk) flush(t *sched.Task, c int) {
	var before, failures int
	d.step(t, func() {
		d.flushes++
		before, failures = len(d.written), d.failures
		d.answers[c] = "asked"
	})
	sleeps := 0
	judge := kit.Judge{WakesOne: d.plant.wakesOne, Sleeps: func() {
		d.step(t, func() { d.asleep[c] = true })
		if sleeps++; d.plant.sleepsTwice && sleeps > 1 {
			breaks(seen, "the flush of connection %d wakes up and goes to sleep again", c)
		}
	}}
	err := kit.RunFlush(d.of, judge.On(t), &flushOf{d, c, before})
	d.step(t, func() {
		d.asleep[c] = false
		if d.answers[c] = "nil"; err != nil {
			d.answers[c] = "EIO"
			d.refused(c, failures, err)
		} else {
			d.promised(c, before, failures)
		}
	})
}

// promised judges a flush that was answered with nil: before writes had been answered when it came,
// and so many Syncs had failed.
func (d *servedDisk) promised(c, before, failures int) {
	if failures > d.toldMax[c] {
		breaks(untold, "a Sync has failed, and the next flush of connection %d returns nil: whoever flushes there believes that nothing is lost", c)
	}
	for i := range d.written[:before] {
		switch x := &d.written[i]; {
		case x.durable || x.lostIn != 0 && x.lostIn <= d.toldMax[c]:
		case x.lostIn != 0:
			breaks(undurable, "connection %d is told that its flush is done, and write %d, which connection %d had an answer for, is lost by a Sync that failed", c, i, x.connection)
		default:
			breaks(undurable, "connection %d is told that its flush is done, and a power cut now loses write %d, which connection %d had an answer for: it is %v", c, i, x.connection, x)
		}
	}
}

// refused judges a flush that was answered with an error.
func (d *servedDisk) refused(c, failures int, err error) {
	if d.failures <= d.told[c] {
		if d.failures == 0 {
			breaks(untold, "connection %d is told %q, and no Sync has failed", c, err)
		}
		breaks(untold, "connection %d is told %q, and was told of every Sync that has failed: a guest gives its disk up for less", c, err)
	}
	d.told[c] = max(d.told[c]+1, failures)
	d.toldMax[c] = d.failures
}

// flushOf is the disk as a flush of a connection sees it.
type flushOf struct {
	d      *servedDisk
	c      int
	before int // writes that had been answered when it came
}

// Connection is the number of the one that asks.
func (f *flushOf) Connection() int { return f.c }

// Sync is an fsync. Two of them end in the order in which they have begun.
func (f *flushOf) Sync(t *sched.Task) error {
	d := f.d
	var n int
	d.step(t, func() {
		if d.begun++; d.begun > d.flushes {
			breaks(unshared, "Sync %d begins, and %d flushes have come: none needs more than one", d.begun, d.flushes)
		}
		if d.sharers != 0 && d.begun > d.ended+1 {
			breaks(unshared, "Sync %d begins while another one is under way: it waits for that one, and those who come meanwhile can share it", d.begun)
		}
		if d.sharers != 0 && d.begun > 2 {
			breaks(unshared, "Sync %d begins: %d flushes came while the first was under way, and one Sync answers them all", d.begun, d.sharers)
		}
		n = d.begun
		for i := range d.written {
			if x := &d.written[i]; x.sync == 0 && (!d.plant.asCalled || i < f.before) {
				x.sync = n
			}
		}
	})
	d.at.Await(t, func(int) bool {
		return (d.ended == n-1 || d.plant.anyOrder) && (n > 1 || d.sleepers() >= d.sharers)
	})
	var err error
	d.step(t, func() {
		if d.ended++; slices.Contains(d.fails, n) {
			d.failures++
			err = errno.EIO
		}
		for i := range d.written {
			switch x := &d.written[i]; {
			case x.sync != n:
			case err != nil:
				x.lostIn = d.failures
			default:
				x.durable = true
			}
		}
	})
	return err
}

func (d *servedDisk) sleepers() int {
	n := 0
	for _, asleep := range d.asleep {
		if asleep {
			n++
		}
	}
	return n
}

// serving is a program in which each connection is a task that does what its string says: w is a
// write, f is a flush. The Syncs with the numbers in fails fail.
func (l Disk) serving(fails []int, connections ...string) func(w *explore.World) {
	return func(w *explore.World) {
		d := l.served(w, len(connections))
		d.fails = fails
		d.connect(w, connections)
	}
}

func (d *servedDisk) connect(w *explore.World, connections []string) {
	for c, ops := range connections {
		w.Go(fmt.Sprint("connection ", c), func(t *sched.Task) {
			for _, op := range ops {
				if op == 'w' {
					d.write(t, c)
				} else {
					d.flush(t, c)
				}
			}
		})
	}
}

// sharing is a program in which the first Sync does not end before all other connections sleep in
// a flush.
func (l Disk) sharing(connections ...string) func(w *explore.World) {
	return func(w *explore.World) {
		d := l.served(w, len(connections))
		d.sharers = len(connections) - 1
		d.connect(w, connections)
	}
}

// Workloads are those of the code, then the questions.
func (l Disk) Workloads() []Workload { return append(l.rows(), l.second()...) }

func (l Disk) read() (name string, wrong []string) { return l.ask(l.second()) }

// second are the questions.
func (l Disk) second() []Workload {
	return questions(l.Second, diskFaults, func(plant func(Disk) Disk) []Workload {
		x := plant(l)
		// all sleep in flush-shared
		return slices.DeleteFunc(x.rows(), func(w Workload) bool { return x.plant.sleepsTwice && w.name == "flush-shared" })
	})
}

// diskFaults are mistakes of others below the code of lab 16, and a run.
var diskFaults = []fault[Disk]{
	{"wakes-one", "Broadcast wakes only the task that has waited the longest", 4, func(l Disk) Disk { l.plant.wakesOne = true; return l }},
	{"sync-as-called", "Sync makes durable what had been answered when its Flush was called, and no more", 4, func(l Disk) Disk { l.plant.asCalled = true; return l }},
	{"sync-any-order", "a Sync may end before one that began earlier", 4, func(l Disk) Disk { l.plant.anyOrder = true; return l }},
	{"sleeps-twice", "no fault, but a run, elsewhere than in flush-shared: a flush wakes up and goes to sleep again", 4, func(l Disk) Disk { l.plant.sleepsTwice = true; return l }},
}

// rows are flushes in every order; then power cuts, the rate, and how well it was foreseen, on a
// file in virtual time.
func (l Disk) rows() []Workload {
	w := func(name, asks string, points float64, p func(w *explore.World)) Workload {
		return Workload{name: name, asks: asks, points: points, program: p, asked: true}
	}
	shared := w("flush-shared", "flushes that come while a Sync is under way: one more Sync answers them all", 10, l.sharing("wf", "wf", "wf"))
	shared.stuck = "flushes that came while a Sync was under way wait for ever"
	turns := w("flush-turns", "two connections that flush again and again", 5, l.serving(nil, "wfwf", "wf"))
	again := w("fail-again", "two Syncs fail: no flush that follows says that all is well", 8, l.serving([]int{1, 2}, "wff", "wff"))
	for _, x := range []*Workload{&shared, &turns, &again} {
		x.limit = 10_000
	}
	return []Workload{
		w("flush-alone", "a connection that writes and flushes, twice: nothing is lost", 3, l.serving(nil, "wfwf")),
		w("flush-two", "two connections write and flush: each promises the writes of both that had their answers", 8, l.serving(nil, "wf", "wf")),
		w("flush-three", "three connections, of which one only writes and one only flushes", 8, l.serving(nil, "w", "f", "wf")),
		turns,
		shared,
		w("fail-alone", "a Sync fails: whoever flushed is told, once", 4, l.serving([]int{1}, "wfwf")),
		w("fail-others", "a Sync fails: a connection that did not ask for it is told at its next flush, once", 8, l.serving([]int{1}, "wf", "wff")),
		again,
		{name: "power-cut", points: 8, ratio: l.powerCuts, judges: true,
			asks: fmt.Sprintf("%d connections to a file in virtual time, and the power cut after each flush: what was promised is on the disk; then a Sync that fails", cutConnections)},
		{name: "rate", points: 12, ratio: l.rate,
			asks: fmt.Sprintf("%d connections: at least %d times the flushes a second of one, and at most one Sync for %d flushes", rateConnections, rateLeast, rateLeast)},
		{name: "predict", points: 10, ratio: l.predict, judges: true,
			asks: fmt.Sprintf("flushes a second, and how long a write with its flush takes, for %d devices and guests: Predict is within %d %% of what is measured", len(served), servedMost)},
	}
}

// syncOf is a file that is served, as a flush of a connection sees it.
type syncOf struct {
	f      *fs.File
	c      int
	took   *[]int64 // gets the times of the Syncs
	begins func()   // if set, is called when one begins
	fails  bool     // it does nothing, and returns an error
}

// Connection is the number of the one that asks.
func (s syncOf) Connection() int { return s.c }

// Sync is an fsync.
func (s syncOf) Sync(t *sched.Task) error {
	if s.begins != nil {
		s.begins()
	}
	if s.fails {
		return errno.EIO
	}
	begin := t.Now()
	err := s.f.Fsync(t)
	*s.took = append(*s.took, t.Now()-begin)
	return err
}

// The power cuts.
const (
	cutConnections = 40
	cutFlushes     = 6 // of each connection
	cutDevice      = 300 * time.Microsecond
)

// powerCuts has connections that write and flush, each at its own pace. After each flush the power
// is cut: what is on the device then is opened, and has what was answered before the flush came.
func (l Disk) powerCuts() (bool, string, error) {
	late := &lateDevice{by: cutDevice}
	cuts := 0
	r := rig{cpus: 4, late: late, flags: format.InodeNoDataCow, opt: fs.Options{Policy: policy.MustParse("unlocked")}}
	err := r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		flusher := l.New()
		var took []int64
		versions := make([]byte, cutConnections) // that were answered, by block
		block := func(c int) []byte { return slices.Repeat([]byte{versions[c]}, format.SectorSize) }
		if _, err := f.WriteAt(t, make([]byte, cutConnections*format.SectorSize), 0); err != nil {
			return err
		}
		if err := x.Sync(t); err != nil {
			return err
		}
		if _, err := inTasks(t, cutConnections, func(t *sched.Task, c int) error {
			for n := range cutFlushes {
				for range 1 + n%2 {
					t.Sleep(time.Duration(37*(c+1)+53*n%400) * time.Microsecond)
					p := block(c)
					for i := range p {
						p[i]++
					}
					if _, err := f.WriteAt(t, p, int64(c)*format.SectorSize); err != nil {
						return err
					}
					versions[c]++
				}
				want := slices.Clone(versions)
				if err := kit.RunFlush(flusher, kit.On(t), syncOf{f: f, c: c, took: &took}); err != nil {
					return fmt.Errorf("the flush of connection %d: %w", c, err)
				}
				cuts++
				if err := afterCut(t, late.Snapshot(), c, want); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		return tellsAll(t, flusher, syncOf{f: f, took: &took})
	})
	return err == nil, fmt.Sprintf("%d power cuts, everything that was promised is on the disk; the error is told to all", cuts), err
}

// tellsAll has a Sync fail, and then flushes of other connections, each twice.
func tellsAll(t *sched.Task, flusher kit.Flusher, s syncOf) error {
	for again := range 2 {
		for c := range cutConnections {
			s.c, s.fails = 10*c, again == 0 && c == 0
			err := kit.RunFlush(flusher, kit.On(t), s)
			switch {
			case again == 0 && err == nil:
				return fmt.Errorf("violated (%v): a Sync that connection 0 asked for has failed, and the next flush of connection %d returns nil", untold, s.c)
			case again == 1 && err != nil:
				return fmt.Errorf("violated (%v): connection %d is told twice of the one Sync that has failed: %w", untold, s.c, err)
			}
		}
	}
	return nil
}

// afterCut opens what is on a device after a flush of connection c, and compares the blocks with
// the versions that were promised.
func afterCut(t *sched.Task, disk blockdev.Device, c int, want []byte) (err error) {
	x, err := fs.Open(t, []blockdev.Device{disk}, fs.Options{})
	if err != nil {
		return fmt.Errorf("after the power cut: %w", err)
	}
	f, err := x.OpenFile(t, "/file", fs.O_RDONLY, 0)
	if err != nil {
		return err
	}
	p := make([]byte, format.SectorSize)
	for block := range want {
		if _, err = f.ReadAt(t, p, int64(block)*format.SectorSize); err != nil {
			return err
		}
		if p[0] < want[block] {
			return fmt.Errorf("violated (%v): the flush of connection %d has returned nil, and after a power cut the block of connection %d has version %d: %d had been answered when the flush came", undurable, c, block, p[0], want[block])
		}
	}
	if err = f.Close(t); err != nil {
		return err
	}
	return x.Close(t)
}

// The measurements of flushes.
const (
	rateConnections = 16
	rateDevice      = time.Millisecond
	rateThink       = 100 * time.Microsecond
	rateLeast       = 6
	servedTime      = 200 * time.Millisecond
	servedMost      = 10 // per cent that a prediction may be off
)

// served are what Predict is asked about. But for one connection by itself, a flush waits whenever
// a shared Sync ends.
var served = []struct {
	device, think time.Duration
	connections   int
}{
	{time.Millisecond, 100 * time.Microsecond, 1},
	{time.Millisecond, 100 * time.Microsecond, 2},
	{time.Millisecond, 100 * time.Microsecond, 16},
	{300 * time.Microsecond, 2 * time.Millisecond, 4},
	{300 * time.Microsecond, 5 * time.Millisecond, 16},
	{100 * time.Microsecond, 6 * time.Millisecond, 12},
}

// flushing answers one flush.
type flushing func(t *sched.Task, s syncOf) error

// byTurns has a Sync for each flush, one after the other.
func byTurns() flushing {
	var q lock.WaitQueue
	q.Init(studentClass)
	busy := false
	return func(t *sched.Task, s syncOf) error {
		for busy {
			q.Wait(t, func() bool { return !busy })
		}
		busy = true
		err := s.Sync(t)
		busy = false
		q.Wake(t)
		return err
	}
}

// grouped has one Sync for all flushes that came while the last one was under way. In virtual time,
// for which it is, one task runs at a time.
func grouped() flushing {
	type group struct {
		leads, done bool // a task is there that has the Sync; it has ended
		err         error
	}
	one, next := byTurns(), &group{}
	var q lock.WaitQueue
	q.Init(studentClass)
	return func(t *sched.Task, s syncOf) error {
		g := next
		if g.leads {
			q.Wait(t, func() bool { return g.done })
			return g.err
		}
		g.leads = true
		s.begins = func() { next = &group{} }
		g.err = one(t, s)
		g.done = true
		q.Wake(t)
		return g.err
	}
}

// guestRun is what was measured of connections. Times are in nanoseconds.
type guestRun struct {
	kit.FlushRates
	syncs   float64 // for each flush
	profile kit.SyncProfile
}

// guests measures connections that sleep, write a block, flush, and begin again.
func guests(answer flushing, connections int, device, think time.Duration) (g guestRun, err error) {
	r := rig{cpus: connections, model: fmt.Sprint("delay:write=", device), flags: format.InodeNoDataCow, opt: fs.Options{Policy: policy.MustParse("unlocked")}}
	err = r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		if _, err := f.WriteAt(t, make([]byte, connections*format.SectorSize), 0); err != nil {
			return err
		}
		if err := x.Sync(t); err != nil {
			return err
		}
		var took, thought, wrote []int64
		flushes, waited := 0, int64(0)
		begin := t.Now()
		if _, err := inTasks(t, connections, func(t *sched.Task, c int) error {
			block := make([]byte, format.SectorSize)
			for t.Now() < begin+servedTime.Nanoseconds() {
				asleep := t.Now()
				t.Sleep(think)
				called := t.Now()
				if _, err := f.WriteAt(t, block, int64(c)*format.SectorSize); err != nil {
					return err
				}
				thought, wrote = append(thought, called-asleep), append(wrote, t.Now()-called)
				if err := answer(t, syncOf{f: f, c: c, took: &took}); err != nil {
					return err
				}
				waited += t.Now() - called
				flushes++
			}
			return nil
		}); err != nil {
			return err
		}
		g.FlushRates = kit.FlushRates{PerSecond: float64(flushes) / (float64(t.Now()-begin) / 1e9), Latency: float64(waited) / float64(flushes)}
		g.syncs = float64(len(took)) / float64(flushes)
		g.profile = kit.SyncProfile{Think: median(thought), Write: median(wrote), Sync: median(took)}
		return nil
	})
	return g, err
}

// median is the middle of times, which it sorts; 0 of none.
func median(times []int64) int64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// rate compares the student's flushes with those of one connection, and says what Syncs that
// overlap would come to.
func (l Disk) rate() (bool, string, error) {
	one, err := guests(byTurns(), 1, rateDevice, rateThink)
	if err != nil {
		return false, "", err
	}
	apart, err := guests(func(t *sched.Task, s syncOf) error { return s.Sync(t) }, rateConnections, rateDevice, rateThink)
	if err != nil {
		return false, "", err
	}
	flusher := l.New()
	mine, err := guests(func(t *sched.Task, s syncOf) error { return kit.RunFlush(flusher, kit.On(t), s) },
		rateConnections, rateDevice, rateThink)
	return mine.PerSecond >= rateLeast*one.PerSecond && mine.syncs*rateLeast <= 1,
		fmt.Sprintf("%.0f flushes a second with %.2f Syncs for each, and one connection has %.0f: want %d times that, and at most %.2f Syncs; a Sync for each, all at one time: %.0f",
			mine.PerSecond, mine.syncs, one.PerSecond, rateLeast, 1.0/rateLeast, apart.PerSecond), err
}

// predict compares the student's predictions with measurements.
func (l Disk) predict() (bool, string, error) {
	worst := 0.0
	for _, x := range served {
		one, err := guests(byTurns(), 1, x.device, x.think)
		if err != nil {
			return false, "", err
		}
		all, err := guests(grouped(), x.connections, x.device, x.think)
		if err != nil {
			return false, "", err
		}
		sandbox.Call("Predict")
		said := l.Predict(one.profile, x.connections)
		for _, y := range []struct {
			what       string
			have, want float64
		}{{"flushes a second", said.PerSecond, all.PerSecond}, {"ns for a write and its flush", said.Latency, all.Latency}} {
			off := math.Abs(y.have-y.want) / y.want * 100
			if !(off <= servedMost) { // NaN is wrong
				return false, fmt.Sprintf("%+v, %d connections: Predict says %.0f %s, and %.0f were measured", one.profile, x.connections, y.have, y.what, y.want), nil
			}
			worst = max(worst, off)
		}
	}
	return true, fmt.Sprintf("%d measurements, the worst prediction is off by %.1f %%, want at most %d", 2*len(served), worst, servedMost), nil
}
