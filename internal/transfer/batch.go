package transfer

import (
	"errors"
	"runtime"
	"sync/atomic"

	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// Regular files are copied by several tasks. The walk makes everything else; the files that it
// meets wait until there are batchFiles of them, and then all tasks copy them. A directory gets its
// attributes when the files in it are there: its time is that of its last change.

const (
	batchFiles = 256
	batchDirs  = 128 // open directories that wait
	batchTasks = 8   // at most, and one for each processor
)

// job is a file that waits. It watches its copying, so that what is left out is reported in the
// order of the walk.
type job struct {
	Watcher
	path string
	p    place
	at   fs.Attr
	err  error
	left []LeftOut
}

// LeaveOut keeps x for report.
func (j *job) LeaveOut(x LeftOut) { j.left = append(j.left, x) }

// ended is a directory whose names are all known.
type ended struct {
	path string
	dir  *hostDir
	do   func() error
}

// later copies a file with a later batch.
func (c *Out) later(path string, p place, at fs.Attr) error {
	c.jobs = append(c.jobs, job{Watcher: c.count.w, path: path, p: p, at: at})
	return c.batch()
}

// end gives a directory its attributes by do, and closes it, after a later batch.
func (c *Out) end(path string, dir *hostDir, do func() error) error {
	c.ended = append(c.ended, ended{path, dir, do})
	return c.batch()
}

func (c *Out) batch() error {
	if len(c.jobs) < batchFiles && len(c.ended) < batchDirs {
		return nil
	}
	return c.flush()
}

// flush copies the files that wait, and ends the directories.
func (c *Out) flush() (err error) {
	c.copyJobs()
	for i := range c.jobs {
		j := &c.jobs[i]
		for _, x := range j.left {
			c.count.w.LeaveOut(x)
		}
		if err == nil {
			err = c.leave(j.path, j.err)
		}
	}
	for _, d := range c.ended {
		if err == nil {
			err = c.leave(d.path, d.do())
		}
		if cerr := d.dir.Close(); err == nil {
			err = cerr
		}
	}
	clear(c.jobs)
	c.jobs, c.ended = c.jobs[:0], c.ended[:0]
	return err
}

// last is flush when err is nil; else what waits is given up.
func (c *Out) last(err error) error {
	if err == nil {
		return c.flush()
	}
	for _, d := range c.ended {
		d.dir.Close()
	}
	c.jobs, c.ended = nil, nil
	return err
}

// copyJobs copies the files that wait, each by one of several tasks. After an error that ends the
// transfer no further one begins.
func (c *Out) copyJobs() {
	n := min(runtime.GOMAXPROCS(0), batchTasks, len(c.jobs))
	for len(c.bufs) < n {
		c.bufs = append(c.bufs, make([]byte, chunk))
	}
	var next atomic.Int64
	var over atomic.Bool
	work := func(t *sched.Task, buf []byte) {
		for !over.Load() {
			i := int(next.Add(1) - 1)
			if i >= len(c.jobs) {
				return
			}
			j := &c.jobs[i]
			w := Out{Keep: c.Keep, t: t, x: c.x, count: count{w: j}, noClone: c.noClone, bufs: [][]byte{buf}}
			j.err = w.fill(j.path, j.at, j.p.begin, object{dir: j.p.dir, name: j.p.name})
			var u *unreadable
			if j.err != nil && !errors.As(j.err, &u) {
				over.Store(true)
			}
		}
	}
	var tasks []*sched.Task
	for i := 1; i < n; i++ {
		tasks = append(tasks, c.t.Go("get", func(t *sched.Task) { work(t, c.bufs[i]) }))
	}
	if n > 0 {
		work(c.t, c.bufs[0])
	}
	for _, t := range tasks {
		c.t.Join(t)
	}
}
