package judges

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/writeback"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// Stable is lab 14: writes of pages that the device reads.
type Stable struct {
	Write   kit.WaitPath
	Device  kit.DevicePath
	Predict func(h kit.HotPage) kit.Rewrites
	*Second

	plant func(r writeback.RunSteps) writeback.RunSteps // a fault, if there is one
	look  *between                                      // a run that a question asks to see
}

// About says what the lab is.
func (Stable) About() *About {
	return &About{N: 14, Folder: "14-stable-pages", Title: "Stable pages", Minutes: 120, Narrow: true, File: "stable.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "math"}, Entry: "Write",
			Want: "func Write(t *kit.Task, w *kit.WaitedWrite) error, func Device(t *kit.Task, r *kit.DirtyRun), func Predict(h kit.HotPage) kit.Rewrites and func Answers() map[string]string"},
			"judges.Stable{Write: student.Write, Device: student.Device, Predict: student.Predict, Second: &judges.Second{Answers: student.Answers}}"),
		Given: []string{"stable-truncate", "stable-direct", "stable-space"}}
}

// lab is the student's write and writeback as the file system takes them.
func (l Stable) lab() iopath.Lab {
	return iopath.Lab{
		Write: func(t *sched.Task, w iopath.WriteSteps) error {
			if l.look != nil {
				w = &writeBetween{w, l.look}
			}
			return kit.RunWaits(l.Write, t, w)
		},
		Writeback: func(t *sched.Task, r writeback.RunSteps) {
			if l.plant != nil {
				r = l.plant(r)
			}
			if l.look != nil {
				x := &runBetween{RunSteps: r, look: l.look}
				defer x.end()
				r = x
			}
			l.Device.Run(t, r)
		},
	}
}

// Workloads are those of the code, then the questions.
func (l Stable) Workloads() []Workload { return append(l.rows(), l.second()...) }

func (l Stable) read() (name string, wrong []string) { return l.ask(l.second()) }

// second are the questions.
func (l Stable) second() []Workload {
	return questions(l.Second, stableFaults, func(plant func(Stable) Stable) []Workload { return plant(l).rows() })
}

// stableFaults are mistakes of others in the steps of Device, and a run.
var stableFaults = []fault[Stable]{
	{"copy-nothing", "Copy copies nothing: the pages themselves are summed and sent", 4, func(l Stable) Stable {
		l.plant = func(r writeback.RunSteps) writeback.RunSteps { return copiesNothing{r} }
		return l
	}},
	{"copy-late", "Copy puts the copying off until Submit, which copies and sends", 4, func(l Stable) Stable {
		l.plant = func(r writeback.RunSteps) writeback.RunSteps { return &copiesLate{RunSteps: r} }
		return l
	}},
	{"unlock-late", "Unlock lets the pages go only when Submit has returned", 4, func(l Stable) Stable {
		l.plant = func(r writeback.RunSteps) writeback.RunSteps { return &unlocksLate{RunSteps: r} }
		return l
	}},
	{"between", "no fault, but a run: a write calls Copy after a Device's Copy and before its Submit has returned", 4, func(l Stable) Stable { l.look = newBetween(); return l }},
}

type copiesNothing struct{ writeback.RunSteps }

func (copiesNothing) Copy(*sched.Task) {}

type copiesLate struct {
	writeback.RunSteps
	asked bool
}

func (r *copiesLate) Copy(*sched.Task) { r.asked = true }

func (r *copiesLate) Submit(t *sched.Task) {
	if r.asked {
		r.RunSteps.Copy(t)
	}
	r.RunSteps.Submit(t)
}

type unlocksLate struct {
	writeback.RunSteps
	asked, sent bool
}

func (r *unlocksLate) Unlock(t *sched.Task) {
	if r.asked = true; r.sent {
		r.RunSteps.Unlock(t)
	}
}

func (r *unlocksLate) Submit(t *sched.Task) {
	r.RunSteps.Submit(t)
	if r.sent = true; r.asked {
		r.RunSteps.Unlock(t)
	}
}

// between is how many runs were copied and have not returned from Submit. Its steps are on one
// object, so that the search tries their orders.
type between struct {
	at   explore.Atomic[int]
	runs int
}

func newBetween() *between {
	b := &between{}
	b.at.Class = studentClass.ID
	return b
}

func (b *between) step(t *sched.Task, add int) {
	b.at.Update(t, func(int) int { b.runs += add; return b.runs })
}

// runBetween is a run that says so.
type runBetween struct {
	writeback.RunSteps
	look *between
	in   bool
}

func (r *runBetween) Copy(t *sched.Task) {
	r.RunSteps.Copy(t)
	if !r.in {
		r.look.step(t, 1)
		r.in = true
	}
}

func (r *runBetween) Submit(t *sched.Task) {
	r.RunSteps.Submit(t)
	if r.in {
		r.look.step(t, -1)
		r.in = false
	}
}

// end undoes what an execution leaves that is broken off.
func (r *runBetween) end() {
	if r.in {
		r.look.runs--
	}
}

type writeBetween struct {
	iopath.WriteSteps
	look *between
}

func (w *writeBetween) Copy(t *sched.Task) {
	w.look.step(t, 0)
	if w.look.runs > 0 {
		breaks(seen, "a write copies into pages, and a Device has copied its own, and its Submit has not returned")
	}
	w.WriteSteps.Copy(t)
}

// rows are rewrites of pages on their way to the device, each followed by a look at every
// checksum on the disk; then what a rewrite waits for, and how well that was foreseen.
func (l Stable) rows() []Workload {
	data := []string{"i_rwsem", "page", "stable_page", "extent", "ordered_extent", "device"}
	ordered := append([]string{"workqueue_idle"}, data...)
	dirty := func(size int64, l ...oracle.Range) scenario.File {
		return scenario.File{Size: size, Cached: all(size), Dirty: l}
	}
	w := func(name, asks string, points float64, classes []string, f scenario.File, tasks ...scenario.Task) Workload {
		return searched(name, asks, points, "locked", 2_000, scenario.Scenario{File: f, Tasks: tasks, Switch: classes, Rule: calls, MaxSteps: 2_000})
	}
	space := w("stable-space", "low data space: a write that gets none leaves nothing promised and nothing locked", 2, []string{"i_rwsem", "space_ticket", "extent"},
		scenario.File{Size: 4 * kib}, task("writer A", mayFail(scenario.Write(8*kib, 16*kib))), task("writer B", mayFail(scenario.Write(64*kib, 16*kib))))
	space.scenario.FillTo = 24 * kib
	direct := w("stable-direct", "a direct write of a sector is in flight: its block is not read before its end", 4, []string{"i_rwsem", "dio_wait", "extent", "ordered_extent", "device"},
		scenario.File{Size: 4 * kib, Nocow: true}, task("direct", scenario.QueuedWrite(0, 512)), task("writer", scenario.Write(512, 512)))
	direct.policy, direct.scenario.Rule = waitPolicy, oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesOff}
	return with(l.lab(), []Workload{
		w("stable-sum", "a rewrite of a page while the device reads it: checksum and bytes fit", 6, data, dirty(4*kib, all(4*kib)...),
			task("writer", scenario.Write(0, 4*kib)), task("writeback", scenario.Flush())),
		w("stable-part", "a rewrite of a part of a page, which is written back and leaves memory", 6, ordered, dirty(4*kib, all(4*kib)...),
			task("writer", scenario.Write(512, 512)), task("other", scenario.Flush(), scenario.Drop())),
		w("stable-second", "a write of two pages, of which the device reads the second, up to EOF", 6, data, dirty(6*kib, oracle.Range{Lo: 4 * kib, Hi: 6 * kib}),
			task("writer", scenario.Write(0, 8*kib)), task("writeback", scenario.Flush())),
		w("stable-twice", "a page that is written back twice: the later bytes stay", 6, ordered, dirty(4*kib, all(4*kib)...),
			task("writer", scenario.Write(0, 4*kib)), task("other", scenario.Flush(), scenario.Drop(), scenario.Flush())),
		w("stable-fsync", "an fsync while writeback has the page: what it has promised is on the disk", 8, []string{"i_rwsem", "page", "extent", "ordered_extent", "device"}, dirty(4*kib, all(4*kib)...),
			task("writer", scenario.Write(0, 4*kib), scenario.Fsync()), task("writeback", scenario.Flush())),
		w("stable-truncate", "a truncate below the write, and writeback: it is not lost", 6, []string{"i_rwsem", "page", "extent"}, scenario.File{Size: 16 * kib, Cached: all(16 * kib)},
			task("writer", scenario.Write(8*kib, 4*kib)), task("truncate", scenario.Truncate(4*kib)), task("writeback", scenario.Flush())),
		direct,
		space,
		{name: "on-disk", points: 10, ratio: l.onDisk, judges: true,
			asks: fmt.Sprintf("a device that reads the bytes %v after it was asked to, rewrites meanwhile, and a power cut: what is on the disk has its checksums, and is what was there before the rewrites", lateBy)},
		{name: "goes-on", points: 10, ratio: l.goesOn,
			asks: fmt.Sprintf("a device that takes %v for a page: a rewrite of it returns within %v", slowDevice, goesOnMost)},
		{name: "hold", points: 8, ratio: holds(l.lab(), "bounce", hotJob),
			asks: fmt.Sprintf("%d writers of blocks that are being written back: i_rwsem is held no longer than under policy bounce", holdTasks)},
		{name: "predict", points: 12, ratio: l.predict, judges: true,
			asks: fmt.Sprintf("how often a page is rewritten, for %d devices and writers: Predict is within %d %% of what is measured, with stable pages and with copies", len(hotPages), hotMost)},
	})
}

// lateDevice is memory that reads the bytes of a write some time after it was asked to, as a disk
// may.
type lateDevice struct {
	*blockdev.Memory
	by time.Duration
}

// Submit starts b.
func (d *lateDevice) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op != blockdev.OpWrite || d.by == 0 {
		d.Memory.Submit(t, b)
		return
	}
	t.Go("device", func(t *sched.Task) {
		t.Sleep(d.by)
		d.Memory.Submit(t, b)
	})
}

const lateBy = 10 * time.Millisecond

// onDisk rewrites pages that the device has been asked to write: a whole one, a part of one, and
// one up to EOF. It cuts the power before they are written back again, and reads the file from the
// disk.
func (l Stable) onDisk() (bool, string, error) {
	const page = format.SectorSize
	const size = 2*page + 512
	late := &lateDevice{}
	old, rewritten := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{2}, size)
	got := make([]byte, size)
	r := rig{cpus: 4, late: late, opt: fs.Options{Policy: policy.MustParse("locked"), Lab: l.lab()}}
	err := r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		write := func(p []byte, lo, hi int) error {
			n, err := f.WriteAt(t, p[lo:hi], int64(lo))
			return whole(n, hi-lo, err)
		}
		if err := errors.Join(write(old, 0, size), x.Sync(t)); err != nil {
			return err
		}
		if err := write(old, 0, size); err != nil {
			return err
		}
		late.by = lateBy
		if err := x.Flush(t, f); err != nil {
			return err
		}
		t.Sleep(lateBy / 10)
		for _, at := range [][2]int{{0, page}, {page + 512, page + 1024}, {2 * page, size}} {
			if err := write(rewritten, at[0], at[1]); err != nil {
				return err
			}
		}
		t.Sleep(3 * lateBy) // the extents are in the tree
		late.by = 0
		if err := x.Commit(t); err != nil {
			return err
		}
		disk := late.Snapshot()
		y, err := fs.Open(t, []blockdev.Device{disk}, fs.Options{ReadOnly: true})
		if err != nil {
			return fmt.Errorf("after the power cut: %w", err)
		}
		g, err := y.OpenFile(t, "/file", fs.O_RDONLY, 0)
		if err != nil {
			return errors.Join(err, y.Close(t))
		}
		_, err = g.ReadAt(t, got, 0)
		return errors.Join(err, g.Close(t), y.Close(t))
	})
	switch {
	case errors.Is(err, errno.EIO):
		return false, "", fmt.Errorf("violated (checksum): after the power cut the bytes on the disk are not those that were summed: %w", err)
	case err != nil:
		return false, "", err
	}
	for i, b := range got {
		if b != old[i] {
			return false, "", violation{explore.KindOracle, fmt.Sprintf("byte %d on the disk is %d, want %d: the rewrite was not written back yet", i, b, old[i])}
		}
	}
	return true, fmt.Sprintf("%d bytes on the disk, every checksum fits", size), nil
}

// The measures of a rewrite under writeback.
const (
	slowDevice = 100 * time.Millisecond
	goesOnMost = time.Millisecond
)

// goesOn rewrites pages that the device has, all of one, a part, and what follows EOF in the last,
// and reads them from the disk afterwards.
func (l Stable) goesOn() (bool, string, error) {
	const page = format.SectorSize
	var worst int64
	r := rig{cpus: 2, model: fmt.Sprint("delay:write=", slowDevice), opt: fs.Options{Policy: policy.MustParse("locked"), Lab: l.lab()}}
	err := r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		want := make([]byte, 2*page+512)
		write := func(t *sched.Task, off, n int, b byte) error {
			p := want[off : off+n]
			for i := range p {
				p[i] = b
			}
			begin := t.Now()
			k, err := f.WriteAt(t, p, int64(off))
			worst = max(worst, t.Now()-begin)
			return whole(k, n, err)
		}
		if err := write(t, 0, len(want), 1); err != nil {
			return err
		}
		if err := x.Sync(t); err != nil { // what is measured overwrites
			return err
		}
		if err := write(t, 0, len(want), 2); err != nil {
			return err
		}
		worst = 0
		if _, err := inTasks(t, 2, func(t *sched.Task, i int) error {
			if i == 0 {
				return x.Flush(t, f)
			}
			t.Sleep(slowDevice / 10)
			for k, at := range [][2]int{{0, page}, {page + 512, 512}, {2*page + 256, 256}} {
				if err := write(t, at[0], at[1], byte(3+k)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		if err := x.Sync(t); err != nil {
			return err
		}
		x.DropCaches(t)
		got := make([]byte, len(want))
		if _, err := f.ReadAt(t, got, 0); err != nil {
			return err
		}
		for i := range got {
			if got[i] != want[i] {
				return fmt.Errorf("byte %d on the disk is %d, want %d, which was written last", i, got[i], want[i])
			}
		}
		return nil
	})
	return worst <= goesOnMost.Nanoseconds(), fmt.Sprintf("the slowest of 3 rewrites took %.3f ms of virtual time, want at most %v", float64(worst)/1e6, goesOnMost), err
}

// hotPages are what Predict is asked about.
var hotPages = []struct{ device, think, every time.Duration }{
	{time.Millisecond, 50 * time.Microsecond, 4 * time.Millisecond},
	{time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond},
	{900 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond},
	{300 * time.Microsecond, 100 * time.Microsecond, 1100 * time.Microsecond},
}

const (
	hotMost   = 5   // per cent that a prediction may be off
	hotRounds = 400 // of writeback
)

// measureHot measures a page under a policy: a write and a writeback alone, and the rewrites in a
// second.
func measureHot(pol string, device, think, every time.Duration) (h kit.HotPage, perSecond float64, err error) {
	r := rig{cpus: 2, model: fmt.Sprint("delay:write=", device), opt: fs.Options{Policy: policy.MustParse(pol)}}
	err = r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		p := make([]byte, format.SectorSize)
		write := func(t *sched.Task) (took int64, err error) {
			begin := t.Now()
			n, err := f.WriteAt(t, p, 0)
			return t.Now() - begin, whole(n, len(p), err)
		}
		h.Every = every.Nanoseconds()
		for range 4 { // the last one counts
			t.Sleep(10 * device) // nothing of it is on its way
			var err error
			if h.Write, err = write(t); err != nil {
				return err
			}
			begin := t.Now()
			if err := x.Flush(t, f); err != nil {
				return err
			}
			if _, err := write(t); err != nil {
				return err
			}
			h.Device = t.Now() - begin - h.Write
		}
		t.Sleep(10 * device)
		asleep := t.Now()
		t.Sleep(think)
		h.Think = t.Now() - asleep // with the time to wake up
		begin, writes := t.Now(), 0
		writing := true
		_, err := inTasks(t, 2, func(t *sched.Task, i int) error {
			if i == 0 {
				defer func() { writing = false }()
				for n := range hotRounds {
					// from half of every to one and a half: no writer is in step with it
					t.Sleep(every/2 + every*time.Duration(n*hotRounds*618/1000%hotRounds)/hotRounds)
					if err := x.Flush(t, f); err != nil {
						return err
					}
				}
				return nil
			}
			for writing {
				if _, err := write(t); err != nil {
					return err
				}
				writes++
				t.Sleep(think)
			}
			return nil
		})
		perSecond = float64(writes) / (float64(t.Now()-begin) / 1e9)
		return err
	})
	return h, perSecond, err
}

// predict compares the student's predictions with measurements.
func (l Stable) predict() (bool, string, error) {
	worst := 0.0
	for _, x := range hotPages {
		h, stable, err := measureHot("locked", x.device, x.think, x.every)
		if err != nil {
			return false, "", err
		}
		_, copied, err := measureHot("bounce", x.device, x.think, x.every)
		if err != nil {
			return false, "", err
		}
		sandbox.Call("Predict")
		said := l.Predict(h)
		for _, y := range []struct {
			what       string
			have, want float64
		}{{"stable pages", said.Stable, stable}, {"copies", said.Copied, copied}} {
			off := math.Abs(y.have-y.want) / y.want * 100
			if !(off <= hotMost) { // NaN is wrong
				return false, fmt.Sprintf("%+v, %s: Predict says %.0f rewrites a second, and %.0f were measured", h, y.what, y.have, y.want), nil
			}
			worst = max(worst, off)
		}
	}
	return true, fmt.Sprintf("%d measurements, the worst prediction is off by %.1f %%, want at most %d", 2*len(hotPages), worst, hotMost), nil
}
