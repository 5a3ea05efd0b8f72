// Package fio reads fio's job files and runs their jobs against a Target: a file in an image, or
// anything else with ReadAt and WriteAt.
//
// A job's tasks are made with sched.Task.Go, tell the time by Task.Now and sleep by Task.Sleep, so
// a job runs in any runtime. Each task has its own random sequence, seeded from the job file's seed
// and the task's number: the same job file gives the same offsets.
//
// Model: fio 3.33. An engine differs in how requests are made, and so in what is measured: slat
// runs until a request has been submitted, clat from there until the task takes its end.
//
//   - psync, sync, pvsync2: one request at a time; clat is the time of the call, there is no slat.
//   - libaio: iodepth requests in flight, in batches. Linux does a buffered request inside
//     io_submit, so slat is the time of the call, and clat runs from its return until fio takes the
//     event, which it does when iodepth requests are queued: about the time of the next iodepth-1
//     calls. The latencies of seed 002 (iodepth=32) can be compared with no other clat. A direct
//     one is queued.
//   - io_uring: as libaio, but a request that would wait is given to a worker; force_async=1 gives
//     them all, as before seed 001.
//   - null: no file, and nothing is moved: what the job itself costs. ftruncate: a write sets the
//     size of its file to the write's offset.
//   - libaio and io_uring on a target with queues of its own (QueueTarget): what goes on in them is
//     the target's affair.
//
// Differences: fsync= is a call of the task itself under every engine, for the file of its last
// write; all files of a task stay open; and the engines' options are few (OptionNames).
package fio

import (
	"io"
	"sync/atomic"

	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
)

// Target is what a job reads and writes. fs.File is one. All methods may be called by many tasks.
type Target interface {
	ReadAt(t *sched.Task, p []byte, off int64) (int, error)
	WriteAt(t *sched.Task, p []byte, off int64) (int, error)
	Truncate(t *sched.Task, size int64) error
	Fallocate(t *sched.Task, mode uint32, off, n int64) error
	Fsync(t *sched.Task) error
	Size(t *sched.Task) int64
}

// CachedTarget is a Target with a cache of its contents, from which invalidate=1 drops what a job
// is going to use.
type CachedTarget interface {
	Target
	DropCache(t *sched.Task, off, n int64)
}

// DirectTarget is a Target with direct I/O, which direct=1 needs.
type DirectTarget interface {
	Target
	ReadDirect(t *sched.Task, p []byte, off int64) (int, error)
	WriteDirect(t *sched.Task, p []byte, off int64) (int, error)
}

// Stamper fills what one task writes, in place of random bytes, and learns when each write ended.
// Its methods are called by that task alone; several writes may be in flight.
type Stamper interface {
	// Stamp fills p, which will be written at off, and gives the write a number. A buffer is the
	// Stamper's own: nobody else changes it.
	Stamp(p []byte, off int64) (write uint64)
	// Done says that a write ran from start to end (Task.Now) at most, and how it ended.
	Done(write uint64, start, end int64, err error)
}

// Progress is how far a run is.
type Progress struct {
	Job     string
	Elapsed int64 // ns since the job started
	Total   int64 // ns the job will take, 0 when it is bounded by work and not by time
	IOs     uint64
	// Fraction of the work done, 0 to 1.
	Fraction float64
}

// Options are what a run needs beside the job file.
type Options struct {
	// Open gives the file of a job: name is filename=, or the name fio would make up. It is called
	// once per name by the task that calls Run; the file must exist or be made, at any size.
	Open func(t *sched.Task, job *Job, name string) (Target, error)
	// Stamper, if set, is asked once per writing task; task counts from 0 over the run.
	Stamper func(job *Job, task int) Stamper
	// Progress, if set, is called about every 100 ms by a task of the job.
	Progress func(Progress)
	// Request, if set, is told of each request that has ended: when it was made and when the task
	// saw its end, in nanoseconds of Task.Now. Tasks of the job call it, several at once in the
	// real runtime.
	Request func(from, to int64)
	// Log, if set, makes a file of the logs that a job asks for; without it there are none.
	Log func(name string) (io.WriteCloser, error)
	// Stop, if set, ends the run early and cleanly when it becomes true.
	Stop *atomic.Bool
	// Notice, if set, gets fio's notes: an option that has no effect here, ...
	Notice func(string)
	// Began and Ended, if set, are told when the tasks of the jobs begin, with all files laid out,
	// and when they have ended.
	Began, Ended func(now int64)
}

// ParseJobFile reads the job file at path.
func ParseJobFile(path string) (*JobFile, error) { return Syntax{}.ParseFile(path) }

// Parse reads a job file; name is used in errors.
func Parse(name string, r io.Reader) (*JobFile, error) { return Syntax{}.Parse(name, r) }

// Run runs the jobs: all at once, but a job with stonewall waits for those before it. The error is
// for what kept a job from starting; a job that failed on the way is in the result
// (stats.Run.FirstError).
func Run(t *sched.Task, jf *JobFile, opt Options) (*stats.Run, error) { return run(t, jf, opt) }
