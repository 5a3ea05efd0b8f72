// Package stats holds what a benchmark measured and writes it as fio does: the text people read and
// the JSON of fio 3.x that programs read. It measures nothing itself.
//
// Model: fio 3.33 stat.c. A Run is one invocation, a Job one report in it: one task, or with
// group_reporting all tasks of a group. Fields that fio fills from the operating system per thread
// (usr_cpu, ctx, ...) are the process's, shared out by run time, because a task has no counters of
// its own.
package stats

import (
	"math"
	"time"
)

// Version is what reports carry as "fio version": the format they follow, and who wrote them.
const Version = "fio-3.33 (btrlab)"

// Percentiles is fio's default percentile_list.
var Percentiles = []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99}

// Option is a job option as it was written. Value is empty for a flag.
type Option struct{ Key, Value string }

// Samples are values taken at regular times: bandwidth, iops.
type Samples struct {
	N        uint64
	Min, Max uint64
	Sum      float64
	SumSq    float64
}

// Add takes one.
func (s *Samples) Add(v uint64) {
	if s.N == 0 || v < s.Min {
		s.Min = v
	}
	s.Max = max(s.Max, v)
	s.N++
	s.Sum += float64(v)
	s.SumSq += float64(v) * float64(v)
}

// MergeSum adds the samples of a task that ran at the same time: rates add up. A report of several
// tasks shows the sum of their means, as fio's.
func (s *Samples) MergeSum(o Samples) {
	if o.N == 0 {
		return
	}
	if s.N == 0 {
		*s = o
		return
	}
	m, om := s.Mean(), o.Mean()
	v := s.Stddev()*s.Stddev() + o.Stddev()*o.Stddev()
	s.Min += o.Min
	s.Max += o.Max
	s.N += o.N
	s.Sum = (m + om) * float64(s.N)
	n := float64(s.N)
	s.SumSq = v*(n-1) + s.Sum*s.Sum/n
	if s.N == 1 {
		s.SumSq = s.Sum * s.Sum
	}
}

// Mean is the arithmetic mean.
func (s Samples) Mean() float64 {
	if s.N == 0 {
		return 0
	}
	return s.Sum / float64(s.N)
}

// Stddev is the sample standard deviation.
func (s Samples) Stddev() float64 {
	if s.N < 2 {
		return 0
	}
	n := float64(s.N)
	return math.Sqrt(math.Max(0, (s.SumSq-s.Sum*s.Sum/n)/(n-1)))
}

// Dir is one direction of a job: its reads or its writes.
type Dir struct {
	Bytes    uint64
	IOs      uint64
	Short    uint64 // transfers that moved fewer bytes than asked and no error
	Dropped  uint64
	RunNs    int64   // longest run of a task in the report
	Slat     Hist    // submission; empty for synchronous engines
	Clat     Hist    // completion
	Lat      Hist    // both
	BWKiB    Samples // KiB/s, per 500 ms
	IOPSSamp Samples
}

// Merge adds a task of the same report.
func (d *Dir) Merge(o *Dir) {
	d.Bytes += o.Bytes
	d.IOs += o.IOs
	d.Short += o.Short
	d.Dropped += o.Dropped
	d.RunNs = max(d.RunNs, o.RunNs)
	d.Slat.Merge(&o.Slat)
	d.Clat.Merge(&o.Clat)
	d.Lat.Merge(&o.Lat)
	d.BWKiB.MergeSum(o.BWKiB)
	d.IOPSSamp.MergeSum(o.IOPSSamp)
}

// IOPS is completed requests per second of run time.
func (d *Dir) IOPS() float64 {
	if d.RunNs <= 0 {
		return 0
	}
	return float64(d.IOs) * 1e9 / float64(d.RunNs)
}

// BytesPerSec is the bandwidth.
func (d *Dir) BytesPerSec() float64 {
	if d.RunNs <= 0 {
		return 0
	}
	return float64(d.Bytes) * 1e9 / float64(d.RunNs)
}

// Wait is what tasks waited for one lock class. fio has no such thing; it is not in fio's formats.
type Wait struct {
	Class string
	Nanos int64
	Count int64
}

// DepthLevels names the columns of the depth tables; the last is open.
var DepthLevels = [7]string{"1", "2", "4", "8", "16", "32", ">=64"}

// BatchLevels names the columns of the submit and complete tables.
var BatchLevels = [7]string{"0", "4", "8", "16", "32", "64", ">=64"}

// DepthLevel is the column of DepthLevels for n requests in flight.
func DepthLevel(n int) int {
	switch {
	case n >= 64:
		return 6
	case n >= 32:
		return 5
	case n >= 16:
		return 4
	case n >= 8:
		return 3
	case n >= 4:
		return 2
	case n >= 2:
		return 1
	}
	return 0
}

// BatchLevel is the column of BatchLevels for n requests at once.
func BatchLevel(n int) int {
	switch {
	case n > 64:
		return 6
	case n > 32:
		return 5
	case n > 16:
		return 4
	case n > 8:
		return 3
	case n > 4:
		return 2
	case n > 0:
		return 1
	}
	return 0
}

// Job is one report.
type Job struct {
	Name      string
	Desc      string
	GroupID   int
	Tasks     int    // tasks in the report
	Errno     int    // 0, or the number of the error that ended a task
	ErrorText string // what and where
	Options   []Option
	ElapsedNs int64

	Read, Write Dir
	Sync        Hist // fsync, and fsync at the end

	RunNs            int64 // sum over tasks of their run time
	UserNs, SysNs    int64
	Ctx, Majf, Minf  int64
	Depth            [7]uint64
	Submit, Complete [7]uint64
	IODepth          int // as the job asked
	HasSlat          bool

	Waits []Wait // by the tasks of the report, most first
	// Nowait is nil when no request was tried without waiting.
	Nowait *Nowait
	// Log is nil when no fsync went to a log.
	Log *Log
	// Ring is nil when the job's requests did not go through rings of ours.
	Ring *Ring
	// IgnoresErrors says that some errors do not end the job, Ignored how many came, FirstIgnored
	// the number of the first.
	IgnoresErrors bool
	Ignored       uint64
	FirstIgnored  int
	// VerifyErrors counts blocks that did not read back as written.
	VerifyErrors uint64
}

// Ignore counts a request that ended with an error which does not end the job.
func (j *Job) Ignore(errno int) {
	if j.Ignored++; j.Ignored == 1 {
		j.FirstIgnored = errno
	}
}

// Merge adds o, a task of the same report.
func (j *Job) Merge(o *Job) {
	j.Tasks += o.Tasks
	if j.Ignored == 0 {
		j.FirstIgnored = o.FirstIgnored
	}
	j.Ignored += o.Ignored
	j.IgnoresErrors = j.IgnoresErrors || o.IgnoresErrors
	if j.Errno == 0 {
		j.Errno, j.ErrorText = o.Errno, o.ErrorText
	}
	j.ElapsedNs = max(j.ElapsedNs, o.ElapsedNs)
	j.Read.Merge(&o.Read)
	j.Write.Merge(&o.Write)
	j.Sync.Merge(&o.Sync)
	j.RunNs += o.RunNs
	j.UserNs += o.UserNs
	j.SysNs += o.SysNs
	j.Ctx += o.Ctx
	j.Majf += o.Majf
	j.Minf += o.Minf
	for i := range j.Depth {
		j.Depth[i] += o.Depth[i]
		j.Submit[i] += o.Submit[i]
		j.Complete[i] += o.Complete[i]
	}
	j.IODepth = max(j.IODepth, o.IODepth)
	j.HasSlat = j.HasSlat || o.HasSlat
	j.VerifyErrors += o.VerifyErrors
	j.Waits = MergeWaits(j.Waits, o.Waits)
	j.Nowait = MergeNowait(j.Nowait, o.Nowait)
	j.Log = MergeLog(j.Log, o.Log)
	j.Ring = MergeRing(j.Ring, o.Ring)
}

// MergeWaits adds up two lists by class.
func MergeWaits(a, b []Wait) []Wait {
	out := append([]Wait(nil), a...)
next:
	for _, w := range b {
		for i := range out {
			if out[i].Class == w.Class {
				out[i].Nanos += w.Nanos
				out[i].Count += w.Count
				continue next
			}
		}
		out = append(out, w)
	}
	for i := 1; i < len(out); i++ { // a handful: insertion sort, most first
		for k := i; k > 0 && out[k].Nanos > out[k-1].Nanos; k-- {
			out[k], out[k-1] = out[k-1], out[k]
		}
	}
	return out
}

// Total is reads and writes together.
func (j *Job) Total() (ios, bytes uint64) {
	return j.Read.IOs + j.Write.IOs, j.Read.Bytes + j.Write.Bytes
}

// DiskUtil is one line of fio's disk statistics.
type DiskUtil struct {
	Name                             string
	ReadIOs, WriteIOs                uint64
	ReadMerges, WriteMerges          uint64
	ReadTicks, WriteTicks, InQueueMs uint64
	Util                             float64 // percent
}

// Run is everything one invocation measured.
type Run struct {
	End       time.Time // wall clock
	Global    []Option
	Jobs      []*Job
	Disks     []DiskUtil
	ElapsedNs int64
}

// FirstError is the first error of a task: the job, what went wrong, and the error number; 0 when
// there is none.
func (r *Run) FirstError() (job, text string, errno int) {
	for _, j := range r.Jobs {
		if j.Errno != 0 {
			return j.Name, j.ErrorText, j.Errno
		}
	}
	return "", "", 0
}
