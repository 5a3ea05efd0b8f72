package judges

import (
	"fmt"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/lock"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// Sectors is lab 10: a direct write of less than a block.
type Sectors struct {
	Write func(t *kit.Task, w *kit.SectorWrite)
	*Second

	plant func(w iopath.SectorSteps) iopath.SectorSteps // a fault, if there is one
}

// About says what the lab is.
func (Sectors) About() *About {
	return &About{N: 10, Folder: "10-unaligned", Title: "Less than a block", Minutes: 75, Blind: "a write has no place: the steps tell whether it is inside EOF and what its blocks are", Narrow: true, File: "sectors.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath}, Entry: "Write", Want: "func Write(t *kit.Task, w *kit.SectorWrite) and func Answers() map[string]string"},
			"judges.Sectors{Write: student.Write, Second: &judges.Second{Answers: student.Answers}}"),
		Given: []string{"sectors-unwritten", "sectors-block", "sectors-written", "sectors-punch", "sectors-truncate", "sectors-beyond"}}
}

// write is the student's order as the file system takes it.
func (l Sectors) write(t *sched.Task, w iopath.SectorSteps) {
	if l.plant != nil {
		w = l.plant(w)
	}
	kit.RunSectors(l.Write, t, w)
}

// Workloads are those of the code, then the questions.
func (l Sectors) Workloads() []Workload { return append(l.rows(), l.second()...) }

func (l Sectors) read() (name string, wrong []string) { return l.ask(l.second()) }

// second are the questions.
func (l Sectors) second() []Workload {
	return questions(l.Second, sectorFaults, func(plant func(iopath.SectorSteps) iopath.SectorSteps) []Workload {
		x := l
		x.plant = plant
		// a reader of half of a write beyond EOF is a matter of its own
		return slices.DeleteFunc(x.rows(), func(w Workload) bool { return w.name == "sectors-beyond" })
	})
}

// sectorFaults are mistakes of others in the steps of lab 10.
var sectorFaults = []fault[iopath.SectorSteps]{
	{"drain-nothing", "Drain does nothing", 5, func(w iopath.SectorSteps) iopath.SectorSteps { return &faultySectors{SectorSteps: w, drain: true} }},
	{"inside-once", "Inside tells again what it told first", 5, func(w iopath.SectorSteps) iopath.SectorSteps { return &faultySectors{SectorSteps: w, inside: true} }},
	{"look-once", "Look tells again what it told first", 5, func(w iopath.SectorSteps) iopath.SectorSteps { return &faultySectors{SectorSteps: w, look: true} }},
	{"found-gone", "no fault, but a run: Look says Unwritten, and the write goes through the page cache all the same", 5, func(w iopath.SectorSteps) iopath.SectorSteps { return &foundGone{SectorSteps: w} }},
}

// faultySectors are steps of which one is wrong.
type faultySectors struct {
	iopath.SectorSteps
	drain, inside, look bool // what is broken
	asked, looked       bool
	was                 bool
	block               kit.Blocks
}

// foundGone is a run in which a block that is seen to be unwritten is not there when it is written.
type foundGone struct {
	iopath.SectorSteps
	unwritten bool
}

func (w *foundGone) Look(t *sched.Task) kit.Blocks {
	is := w.SectorSteps.Look(t)
	w.unwritten = w.unwritten || is == kit.Unwritten
	return is
}

func (w *foundGone) Cache() {
	if w.unwritten {
		breaks(seen, "Look has said Unwritten, and the write goes through the page cache")
	}
	w.SectorSteps.Cache()
}

func (w *faultySectors) Drain(t *sched.Task) {
	if !w.drain {
		w.SectorSteps.Drain(t)
	}
}

func (w *faultySectors) Inside() bool {
	if is := w.SectorSteps.Inside(); !w.inside || !w.asked {
		w.asked, w.was = true, is
	}
	return w.was
}

func (w *faultySectors) Look(t *sched.Task) kit.Blocks {
	if is := w.SectorSteps.Look(t); !w.look || !w.looked {
		w.looked, w.block = true, is
	}
	return w.block
}

// rows are two tasks of which one or both write a sector, on the real write path, then the ratio.
func (l Sectors) rows() []Workload {
	const design = "unaligned-check-first"
	rule := oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesOff}
	classes := []string{"i_rwsem", "dio_wait", "extent", "ordered_extent", "device"}
	w := func(name, asks string, points float64, pol string, f scenario.File, tasks ...scenario.Task) Workload {
		return searched(name, asks, points, pol, 500, scenario.Scenario{File: f, Tasks: tasks, Switch: classes, Rule: rule})
	}
	unwritten, written := scenario.File{Nocow: true, Unwritten: 4 * kib}, scenario.File{Nocow: true, Size: 8 * kib}
	return with(iopath.Lab{Sectors: l.write}, []Workload{
		w("sectors-unwritten", "two sectors of a block that is not written: no zeros over another's bytes", 13, design, unwritten,
			task("writer A", scenario.DirectWrite(0, 512)), task("writer B", scenario.DirectWrite(512, 512))),
		w("sectors-block", "a sector of a block that a direct write in flight has not marked yet", 8, "locked+UNALIGNED_CHECK_FIRST", unwritten,
			task("block", scenario.DirectWrite(0, 4*kib)), task("sector", scenario.DirectWrite(512, 512))),
		w("sectors-written", "two sectors of a written block, and a reader", 5, design, written,
			task("writer A", scenario.DirectWrite(0, 512)), task("writer B", scenario.DirectWrite(512, 512)), task("reader", scenario.Read(0, 4*kib))),
		w("sectors-punch", "a block that becomes a hole before the write has its lock", 13, design, written,
			task("sector", scenario.DirectWrite(512, 512)), task("punch", scenario.Punch(0, 4*kib))),
		w("sectors-truncate", "a file that becomes shorter before the write has its lock", 13, design, scenario.File{Nocow: true, Unwritten: 8 * kib},
			task("sector", scenario.DirectWrite(4*kib+512, 512)), task("truncate", scenario.Truncate(4*kib))),
		w("sectors-beyond", "a write beyond EOF, and one of a sector inside it", 5, design, scenario.File{Nocow: true, Size: 2 * kib},
			task("beyond", scenario.DirectWrite(2*kib, 512)), task("inside", scenario.DirectWrite(512, 512))),
		{name: "sectors-together", asks: "two sectors of a written block are on their way at one time", points: 11, program: l.together,
			stuck: "the block of both writes is written, and no zeros come with them: whoever comes second may not wait for the first", anyWait: true},
		{name: "virtual-time", points: 12, ratio: l.speed,
			asks: fmt.Sprintf("%d writers of sectors of written blocks, a device of 1 ms: at least %d times one at a time", sectorTasks, minSectors)},
	})
}

// togetherSide is a direct write of a sector of a written block, inside EOF. It is over only after
// two have been submitted, so a write that keeps the other one out waits for ever.
type togetherSide struct {
	file   *lock.RWSem
	alone  bool
	flying *explore.Atomic[int] // writes that were submitted
}

func (s *togetherSide) Share(t *sched.Task) { s.file.RLock(t); s.alone = false }
func (s *togetherSide) Alone(t *sched.Task) { s.file.Lock(t); s.alone = true }

func (s *togetherSide) Unlock(t *sched.Task) {
	if s.alone {
		s.file.Unlock(t)
	} else {
		s.file.RUnlock(t)
	}
}

func (s *togetherSide) Inside() bool                { return true }
func (s *togetherSide) Look(*sched.Task) kit.Blocks { return kit.Written }

// Drain waits for the submitted writes, which end together.
func (s *togetherSide) Drain(t *sched.Task) { s.flying.Await(t, func(n int) bool { return n != 1 }) }

func (s *togetherSide) Submit(t *sched.Task) bool {
	s.flying.Update(t, func(n int) int { return n + 1 })
	return true
}

func (s *togetherSide) Wait(t *sched.Task) { s.flying.Await(t, func(n int) bool { return n == 2 }) }

func (s *togetherSide) Cache() {
	panic("sectors of a written block inside EOF go through the page cache, where one waits for the other")
}

// together is a program without a file system: two writes of sectors of one written block.
func (l Sectors) together(w *explore.World) {
	file, flying := &lock.RWSem{}, &explore.Atomic[int]{}
	file.Init(labFile)
	flying.Class = studentClass.ID
	w.Name(flying, "the writes submitted")
	for _, name := range []string{"writer A", "writer B"} {
		w.Go(name, func(t *sched.Task) { kit.RunSectors(l.Write, t, &togetherSide{file: file, flying: flying}) })
	}
}

// The measurement of lab 10.
const (
	sectorTasks  = 8
	sectorWrites = 100 // of each
	minSectors   = 5
)

// speed measures how much faster overwrites of sectors are by the student's order than one at
// a time.
func (l Sectors) speed() (bool, string, error) {
	return speedup("one at a time", minSectors,
		func() (int64, error) { return sectorTime("unaligned-exclusive", iopath.Lab{}) },
		func() (int64, error) { return sectorTime("unaligned-check-first", iopath.Lab{Sectors: l.write}) })
}

// sectorTime is the virtual time that the writes take, in nanoseconds. Their bytes are compared
// afterwards.
func sectorTime(pol string, lab iopath.Lab) (took int64, err error) {
	const bytes = 2048
	r := rig{cpus: sectorTasks, flags: format.InodeNoDataCow | format.InodeNoDataSum, model: "delay", opt: fs.Options{Policy: policy.MustParse(pol), Lab: lab}}
	err = r.run(func(t *sched.Task, _ *fs.FS, f *fs.File) error {
		if _, err := f.WriteDirect(t, make([]byte, sectorTasks*sectorWrites*bytes), 0); err != nil {
			return err
		}
		took, err = inTasks(t, sectorTasks, func(t *sched.Task, i int) error {
			p := make([]byte, bytes)
			for k := range p {
				p[k] = byte(i + 1)
			}
			for n := range sectorWrites {
				// two tasks to a block
				if _, err := f.WriteDirect(t, p, int64(n*sectorTasks+i)*bytes); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		block := make([]byte, format.SectorSize)
		for n := range sectorTasks * sectorWrites / 2 {
			if _, err := f.ReadDirect(t, block, int64(n)*format.SectorSize); err != nil {
				return err
			}
			first := byte(2*n%sectorTasks + 1)
			if block[0] != first || block[bytes] != first+1 {
				return fmt.Errorf("block %d has %d and %d, want %d and %d: a write was told that it is whole", n, block[0], block[bytes], first, first+1)
			}
		}
		return nil
	})
	return took, err
}
