package calibrate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// A Load is a job that keeps the processors busy: a file in the page cache, an image in memory, no
// model of a device.
type Load struct {
	Name   string `json:"name"`
	Policy string `json:"policy"`
	Jobs   int    `json:"jobs"`
	RW     string `json:"rw"`
	BS     string `json:"bs"`
	// Dirty is the dirty limit in bytes: with 0 nothing is written back.
	Dirty int64 `json:"dirty_limit_bytes"`
}

// Loads are the jobs of Verify. They are not fitted: the costs come from loops and single
// operations of one task.
var Loads = []Load{
	{Name: "1 writer, 4k", Policy: "locked", Jobs: 1, RW: "randwrite", BS: "4k"},
	{Name: "2 writers, 4k", Policy: "locked", Jobs: 2, RW: "randwrite", BS: "4k"},
	{Name: "2 writers, 4k", Policy: "unlocked", Jobs: 2, RW: "randwrite", BS: "4k"},
	{Name: "2 writers, 4k", Policy: "range-lock", Jobs: 2, RW: "randwrite", BS: "4k"},
	{Name: "1 writer, 64k", Policy: "locked", Jobs: 1, RW: "randwrite", BS: "64k"},
	{Name: "2 writers, 64k", Policy: "locked", Jobs: 2, RW: "randwrite", BS: "64k"},
	{Name: "2 writers, 64k", Policy: "range-lock", Jobs: 2, RW: "randwrite", BS: "64k"},
	{Name: "2 readers, 4k", Policy: "locked", Jobs: 2, RW: "randread", BS: "4k"},
	{Name: "2 of 50/50, 4k", Policy: "locked", Jobs: 2, RW: "randrw", BS: "4k"},
	{Name: "1 writer, 4k, writeback", Policy: "locked", Jobs: 1, RW: "randwrite", BS: "4k", Dirty: 32 << 20},
	{Name: "2 writers, 4k, writeback", Policy: "range-lock", Jobs: 2, RW: "randwrite", BS: "4k", Dirty: 32 << 20},
	{Name: "2 writers, 64k, writeback", Policy: "locked", Jobs: 2, RW: "randwrite", BS: "64k", Dirty: 32 << 20},
}

// job is l as fio has it, for ms milliseconds after as many that do not count.
func (l *Load) job(size int64, ms int) (*fio.JobFile, error) {
	return fio.Parse(l.Name, strings.NewReader(fmt.Sprintf(
		"[w]\nioengine=psync\nrw=%s\nbs=%s\nsize=%d\nnorandommap\nthread\ngroup_reporting\ntime_based\ninvalidate=0\nruntime=%dms\nramp_time=%dms\nnumjobs=%d\n",
		l.RW, l.BS, size, ms, ms/2, l.Jobs)))
}

// Run does the load as a task of any runtime and returns its operations per second.
func (l *Load) Run(t *sched.Task, size int64, ms int) (iops float64, err error) {
	jf, err := l.job(size, ms)
	if err != nil {
		return 0, err
	}
	dirty := l.Dirty
	if dirty == 0 {
		dirty = 8 * size
	}
	r, err := rig.Open(t, rig.Config{Size: size + size/2 + 512<<20, DirtyBackground: dirty / 2, DirtyLimit: dirty, CacheLimit: 4 * size, NoPayload: t.Runtime() != nil})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	x, err := r.OpenFS(t, l.Policy)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, x.Close(t)) }()
	f, err := x.Create(t, "/f", 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(t)) }()
	if err = f.SetFlags(t, format.InodeNoDataCow|format.InodeNoDataSum); err != nil {
		return 0, err
	}
	if err = fill(t, f, size); err == nil {
		err = x.Sync(t)
	}
	if err == nil {
		err = fill(t, f, size) // every page is dirty now, or as many as may be
	}
	if err != nil {
		return 0, err
	}
	if t.Runtime() == nil {
		runtime.GC() // or the garbage of the load before is collected during this one
	}
	res, err := fio.Run(t, jf, fio.Options{Open: func(*sched.Task, *fio.Job, string) (fio.Target, error) { return f, nil }})
	if err != nil {
		return 0, err
	}
	if job, text, no := res.FirstError(); no != 0 {
		return 0, fmt.Errorf("job %s: %s", job, text)
	}
	for _, j := range res.Jobs {
		iops += j.Read.IOPS() + j.Write.IOPS()
	}
	return iops, nil
}

// fill writes the whole file.
func fill(t *sched.Task, f *fs.File, size int64) error {
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(buf)) {
		if _, err := f.WriteAt(t, buf, off); err != nil {
			return err
		}
	}
	return nil
}

// Agreement is a load in both runtimes, in operations per second.
type Agreement struct {
	Load
	// Real is the median of the rounds, Low and High are their spread.
	Real float64 `json:"real_iops"`
	Low  float64 `json:"real_low_iops"`
	High float64 `json:"real_high_iops"`
	// Virtual is the same every time.
	Virtual float64 `json:"virtual_iops"`
	// Ratio is Virtual by Real.
	Ratio float64 `json:"virtual_by_real"`
	// Taken is the most that other processes took of the machine during a round, as a part of it.
	Taken float64 `json:"others"`
}

// disturbance is the part of the machine that other processes may take from a round; then it is run
// again, up to twice.
const disturbance = 0.03

// undisturbed is the try during which other processes took the least, and how much of the machine
// that was.
func undisturbed(f func() (float64, error)) (v, taken float64, err error) {
	taken = math.Inf(1)
	for range 3 {
		before, ok := busy()
		n, err := f()
		if err != nil {
			return 0, 0, err
		}
		if !ok {
			return n, 0, nil
		}
		after, _ := busy()
		if x := after.others(before); x < taken {
			v, taken = n, x
		}
		if taken <= disturbance {
			break
		}
	}
	return v, taken, nil
}

// ticks are the machine's times since it was booted, in ticks of its clock.
type ticks struct{ all, idle, own float64 }

// others is the part of the time since b that other processes had, or the host of a virtual
// machine.
func (a ticks) others(b ticks) float64 {
	all := a.all - b.all
	if all <= 0 {
		return 0
	}
	return max(0, (all-(a.idle-b.idle)-(a.own-b.own))/all)
}

// busy reads the times where the system tells them (Linux).
func busy() (k ticks, ok bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return k, false
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return k, false
	}
	for i, s := range f[1:9] { // user nice system idle iowait irq softirq steal
		n, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return k, false
		}
		k.all += n
		if i == 3 || i == 4 {
			k.idle += n
		}
	}
	self, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return k, false
	}
	_, rest, _ := strings.Cut(string(self), ") ")
	g := strings.Fields(rest)
	if len(g) < 13 {
		return k, false
	}
	for _, s := range g[11:13] { // utime stime
		n, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return k, false
		}
		k.own += n
	}
	return k, true
}

// VerifyOptions says how to verify.
type VerifyOptions struct {
	Size         int64 // of the file; 0 is DefaultSize
	Rounds       int   // 0 is DefaultRounds
	Milliseconds int   // of each run; 0 is DefaultMilliseconds
	// Progress and Stop are as in Options.
	Progress func(done, of int)
	Stop     *atomic.Bool
}

// DefaultMilliseconds is the default of VerifyOptions.
const DefaultMilliseconds = 300

// Verify runs every load in the real runtime, in alternating rounds, and once in virtual time with
// the costs. Both have as many processors as the machine, at most 2.
func Verify(t *sched.Task, costs *cost.Table, o VerifyOptions) ([]Agreement, error) {
	size, rounds, ms, stop, progress := o.Size, o.Rounds, o.Milliseconds, o.Stop, o.Progress
	if size == 0 {
		size = DefaultSize
	}
	if rounds == 0 {
		rounds = DefaultRounds
	}
	if ms == 0 {
		ms = DefaultMilliseconds
	}
	cpus := min(2, runtime.NumCPU())
	was := runtime.GOMAXPROCS(cpus)
	defer runtime.GOMAXPROCS(was)
	out := make([]Agreement, len(Loads))
	all := make([][]float64, len(Loads))
	of := (rounds + 1) * len(Loads)
	for r := range rounds + 1 {
		for i := range Loads {
			if stop != nil && stop.Load() {
				return nil, errors.New("stopped")
			}
			if progress != nil {
				progress(r*len(Loads)+i, of)
			}
			l := &Loads[i]
			if r > 0 {
				v, taken, err := undisturbed(func() (float64, error) { return l.Run(t, size, ms) })
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", l.Name, l.Policy, err)
				}
				all[i] = append(all[i], v)
				out[i].Taken = max(out[i].Taken, taken)
				continue
			}
			out[i].Load = *l
			var err error
			_, verr := vtime.Run(vtime.Machine{CPUs: cpus, Costs: costs, GoLocks: true}, func(t *sched.Task) {
				out[i].Virtual, err = l.Run(t, size, ms)
			})
			if err = errors.Join(err, verr); err != nil {
				return nil, fmt.Errorf("%s, %s, virtual time: %w", l.Name, l.Policy, err)
			}
		}
	}
	for i := range out {
		a := &out[i]
		a.Real, a.Low, a.High = stats.Spread(all[i])
		a.Ratio = a.Virtual / a.Real
	}
	return out, nil
}

func writeAgreement(out io.Writer, list []Agreement) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "job\tpolicy\treal\tspread\tvirtual\tby real\tothers")
	for _, a := range list {
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f..%.0f\t%.0f\t%.2f\t%.0f%%\n", a.Name, a.Policy, a.Real, a.Low, a.High, a.Virtual, a.Ratio, 100*a.Taken)
	}
	w.Flush()
}
