package grade

import (
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/sched"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// side makes a kit.SectorSide of the write path's.
type side struct{ iopath.SectorWrite }

func (s side) Look(t *sched.Task) kit.Blocks { return kit.Blocks(s.SectorWrite.Look(t)) }

// sectors is the student's order as the file system takes it; nil is none.
func (s *Student) sectors() func(t *sched.Task, w iopath.SectorWrite) {
	if s.Sectors == nil {
		return nil
	}
	return func(t *sched.Task, w iopath.SectorWrite) { kit.RunSectors(s.Sectors, t, side{w}) }
}

// sectorWorkloads are lab 10's: two tasks of which one or both write a sector, on the real write path, then the ratio.
func sectorWorkloads() []workload {
	const design = "unaligned-check-first"
	rule := oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesOff}
	classes := []string{"i_rwsem", "dio_wait", "extent", "ordered_extent", "device"}
	task := func(name string, ops ...scenario.Op) scenario.Task { return scenario.Task{Name: name, Ops: ops} }
	w := func(name, asks string, points float64, pol string, f scenario.File, tasks ...scenario.Task) workload {
		return workload{name: name, asks: asks, points: points, policy: pol, limit: 500,
			scenario: &scenario.Scenario{Name: name, About: asks, File: f, Tasks: tasks, Switch: classes, Rule: rule, Deep: true}}
	}
	unwritten, written := scenario.File{Nocow: true, Unwritten: 4 * kib}, scenario.File{Nocow: true, Size: 8 * kib}
	return []workload{
		w("sectors-unwritten", "two sectors of a block that is not written: no zeros over another's bytes", 20, design, unwritten,
			task("writer A", scenario.DirectWrite(0, 512)), task("writer B", scenario.DirectWrite(512, 512))),
		w("sectors-block", "a sector of a block that a direct write in flight has not marked yet", 15, "locked+UNALIGNED_CHECK_FIRST", unwritten,
			task("block", scenario.DirectWrite(0, 4*kib)), task("sector", scenario.DirectWrite(512, 512))),
		w("sectors-written", "two sectors of a written block, and a reader", 5, design, written,
			task("writer A", scenario.DirectWrite(0, 512)), task("writer B", scenario.DirectWrite(512, 512)), task("reader", scenario.Read(0, 4*kib))),
		w("sectors-punch", "a block that becomes a hole before the write has its lock", 15, design, written,
			task("sector", scenario.DirectWrite(512, 512)), task("punch", scenario.Punch(0, 4*kib))),
		w("sectors-truncate", "a file that becomes shorter before the write has its lock", 15, design, scenario.File{Nocow: true, Unwritten: 8 * kib},
			task("sector", scenario.DirectWrite(4*kib+512, 512)), task("truncate", scenario.Truncate(4*kib))),
		w("sectors-beyond", "a write beyond EOF, and one of a sector inside it", 10, design, scenario.File{Nocow: true, Size: 2 * kib},
			task("beyond", scenario.DirectWrite(2*kib, 512)), task("inside", scenario.DirectWrite(512, 512))),
		{name: "virtual-time", points: 20, ratio: sectorRatio,
			asks: fmt.Sprintf("%d writers of sectors of written blocks, a device of 1 ms: at least %d times one at a time", sectorTasks, minSectors)},
	}
}

// The measurement of lab 10.
const (
	sectorTasks  = 8
	sectorWrites = 100 // of each
	minSectors   = 5
)

// sectorRatio measures how much faster overwrites of sectors are by the student's order than one at a time.
func sectorRatio(s *Student) (bool, string, error) {
	return speedup("one at a time", minSectors,
		func() (int64, error) { return sectorTime("unaligned-exclusive", nil) },
		func() (int64, error) { return sectorTime("unaligned-check-first", s.sectors()) })
}

// sectorTime is the virtual time that the writes take, in nanoseconds. Their bytes are compared afterwards.
func sectorTime(pol string, write func(t *sched.Task, w iopath.SectorWrite)) (took int64, err error) {
	const bytes = 2048
	r := rig{cpus: sectorTasks, flags: format.InodeNoDataCow | format.InodeNoDataSum, model: "delay", opt: fs.Options{Policy: policy.MustParse(pol), Sectors: write}}
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
				if _, err := f.WriteDirect(t, p, int64(n*sectorTasks+i)*bytes); err != nil { // two tasks to a block
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
