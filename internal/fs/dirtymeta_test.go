package fs_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestDirtyMetadata: nobody syncs, and still the tree blocks that wait for a commit stay bounded,
// because a task that changes something commits first when there are too many: names that tasks
// make at once, and file extents that enter the trees as random writes end. Without the bound they
// grow as long as the transaction does.
func TestDirtyMetadata(t *testing.T) {
	need.LongRaced(t)
	const limit, blocks = 1 << 20, 16 << 10
	for _, bounded := range []bool{true, false} {
		for _, c := range []struct {
			name string
			do   func(x *fstest.Fixture, look func(t *sched.Task))
		}{
			{"names", func(x *fstest.Fixture, look func(t *sched.Task)) {
				fstest.Parallel(x.T, 4, func(t *sched.Task, i int) {
					for n := range 3000 {
						if err := x.FS.Mkdir(t, fmt.Sprintf("/%04d-%d-%0100d", n*7919%3000, i, 0), 0o755); err != nil {
							x.Error(err)
							return
						}
						look(t)
					}
				})
			}},
			{"extents", func(x *fstest.Fixture, look func(t *sched.Task)) {
				f := x.Create("/f")
				p := make([]byte, 4096)
				for n := range int64(blocks) {
					x.WriteAt(f, p, n*7919%blocks*8192)
					look(x.T)
				}
				x.Must(f.Close(x.T))
			}},
		} {
			t.Run(fmt.Sprintf("%s/bounded=%v", c.name, bounded), func(t *testing.T) {
				if sched.UnderRace && (!bounded || c.name == "extents") {
					t.Skip("too slow for what it adds: the file system's own tasks are those of the other cases, and without a bound nobody waits")
				}
				x := fstest.New(t, fstest.Size(512<<20), fstest.FSOptions(func(o *fs.Options) {
					o.Memory, o.DirtyBackground, o.DirtyLimit = fs.NoLimit, 512<<10, 1<<20
					if bounded {
						o.DirtyMetadata = limit
					}
				}))
				before, most := x.FS.Statfs(x.T).Generation, &maximum{}
				c.do(x, func(t *sched.Task) { most.of(x.FS.Statfs(t).DirtyMetadata) })
				commits := x.FS.Statfs(x.T).Generation - before
				t.Logf("%d commits, at most %d bytes", commits, most.n.Load())
				if n := most.n.Load(); bounded && (commits < 2 || n > limit+limit/4) || !bounded && (commits > 0 || n <= limit+limit/4) {
					t.Errorf("%d commits, at most %d bytes of changed tree blocks, with a limit of %d", commits, n, limit)
				}
			})
		}
	}
}

// maximum is the largest of some numbers.
type maximum struct{ n atomic.Int64 }

func (m *maximum) of(n int64) {
	for {
		old := m.n.Load()
		if n <= old || m.n.CompareAndSwap(old, n) {
			return
		}
	}
}
