package judges

import (
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/trace"
	"btrlab/labs/kit"
)

// Baseline is lab 2: what a student writes.
type Baseline struct {
	Measure   func(t *kit.Task, c *kit.Client) []int64
	Summarize func(writers [][]int64, elapsed int64) kit.Summary
	Bin       func(ns int64) int
	Value     func(bin int) int64
	Predict   func(alone, crowd kit.Profile, writers int) kit.Prediction
	Enough    func(alone, crowd kit.Profile) int
}

// About says what the lab is.
func (Baseline) About() *About {
	return &About{N: 2, Folder: "02-locked-baseline", Title: "The locked baseline", Minutes: 75, Blind: "latencies and numbers, of which the rows ask all sizes", File: "measure.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "cmp", "math", "math/bits", "slices", "sort"}, Entry: "Measure",
			Want: "func Measure(t *kit.Task, c *kit.Client) []int64, and the functions Summarize, Bin, Value, Predict and Enough of the starter"},
			"judges.Baseline{Measure: student.Measure, Summarize: student.Summarize, Bin: student.Bin, Value: student.Value, "+
				"Predict: student.Predict, Enough: student.Enough}")}
}

// Workloads are all computed, in virtual time where there is a time.
func (l Baseline) Workloads() []Workload {
	return []Workload{
		{name: "summary", points: 20, ratio: faultless(l.summaries), asks: "the latencies of all writers together: mean, percentiles by the nearest rank, writes a second"},
		{name: "histogram", points: 15, ratio: faultless(l.histogram), asks: fmt.Sprintf("a histogram of at most %d bins whose values are off by 1/%d at most", maxBins, binError)},
		{name: "open-loop", points: 25, ratio: l.openLoop, asks: "requests that are due while the lock is held have waited: their latency begins when they are due"},
		{name: "predict", points: 25, ratio: calmly(l.predictions), asks: fmt.Sprintf("writes a second, mean wait and waiters for other numbers of writers, within %d %%", maxOff)},
		{name: "enough", points: 15, ratio: calmly(l.enough), asks: "the number of writers beyond which there is nothing to gain"},
	}
}

// calmly is ratio, with a panic of the student's code as what is wrong.
func calmly(ratio func() (bool, string, error)) func() (bool, string, error) {
	return func() (ok bool, text string, err error) {
		defer func() {
			if p := recover(); p != nil {
				ok, text, err = false, blame(p), nil
			}
		}()
		return ratio()
	}
}

// blame is a panic in words, with the student's line if it was there. It is called while the stack
// is that of the panic.
func blame(p any) string {
	if at := sandbox.StudentLine(debug.Stack()); at != "" {
		return fmt.Sprintf("%s: %v", at, p)
	}
	return fmt.Sprint(p)
}

// faultless is a ratio that passes when judge finds nothing wrong.
func faultless(judge func() string) func() (bool, string, error) {
	return calmly(func() (bool, string, error) {
		if wrong := judge(); wrong != "" {
			return false, wrong, nil
		}
		return true, "as asked", nil
	})
}

// random is a generator of numbers that are the same everywhere.
type random uint64

func (r *random) next() uint64 {
	*r ^= *r << 13
	*r ^= *r >> 7
	*r ^= *r << 17
	return uint64(*r)
}

// summaries gives the student writers of different lengths and speeds.
func (l Baseline) summaries() string {
	rnd := random(1)
	for _, lengths := range [][]int{{1}, {2}, {4, 4}, {100}, {199, 1}, {40, 10, 350}, {1000, 500, 123}} {
		var writers [][]int64
		var all []int64
		sum := int64(0)
		for i, n := range lengths {
			each := make([]int64, n)
			for k := range each {
				each[k] = int64(1000+rnd.next()%1000) * int64(i+1)
				if rnd.next()%50 == 0 {
					each[k] *= 100
				}
				sum += each[k]
			}
			writers, all = append(writers, each), append(all, each...)
		}
		slices.Sort(all)
		rank := func(p int) int64 {
			for i, ns := range all {
				if 100*(i+1) >= p*len(all) {
					return ns
				}
			}
			return 0
		}
		elapsed := sum + 1_000_000 // they do other things as well
		want := kit.Summary{Ops: len(all), PerSecond: float64(len(all)) * 1e9 / float64(elapsed), Mean: float64(sum) / float64(len(all)), P50: rank(50), P99: rank(99)}
		given := make([][]int64, len(writers))
		for i := range writers {
			given[i] = slices.Clone(writers[i])
		}
		have := l.Summarize(given, elapsed)
		for _, x := range []struct {
			what       string
			have, want float64
		}{
			{"Ops", float64(have.Ops), float64(want.Ops)}, {"PerSecond", have.PerSecond, want.PerSecond}, {"Mean", have.Mean, want.Mean},
			{"P50", float64(have.P50), float64(want.P50)}, {"P99", float64(have.P99), float64(want.P99)},
		} {
			if !(math.Abs(x.have-x.want) <= x.want*1e-9) {
				return fmt.Sprintf("writers with %v latencies: %s is %.10g, want %.10g", lengths, x.what, x.have, x.want)
			}
		}
	}
	return ""
}

// The histogram of lab 2 is fio's or a better one.
const (
	maxBins  = 2048
	binError = 128
	maxValue = 16e9 // nanoseconds
)

// histogram asks for values of every size.
func (l Baseline) histogram() string {
	rnd := random(2)
	var values []int64
	for v := int64(1); v < maxValue; v *= 2 {
		for _, x := range []int64{v - 1, v, v + 1, v + v/3, v + v/2, v + v/64, v + int64(rnd.next())&(v-1)} {
			values = append(values, min(x, maxValue))
		}
	}
	slices.Sort(values)
	last := 0
	for i, v := range values {
		n := l.Bin(v)
		mid := l.Value(n)
		off := max(mid-v, v-mid)
		switch {
		case n < 0 || n >= maxBins:
			return fmt.Sprintf("Bin(%d) is %d, want 0 to %d", v, n, maxBins-1)
		case i > 0 && n < last:
			return fmt.Sprintf("Bin(%d) is %d, below the %d of a smaller latency", v, n, last)
		case off*binError > v:
			return fmt.Sprintf("Value(%d), the bin of %d, is %d: off by 1/%.0f, want 1/%d at most", n, v, mid, float64(v)/float64(off), binError)
		}
		last = n
	}
	return ""
}

// The open loop of lab 2: requests of one block, each some time after the last, and a long write by
// another task in between.
const (
	loopRequests = 400
	loopWarmup   = 100
	loopEvery    = 40_000 // nanoseconds
	loopLong     = 12 << 20
	// loopSlack is for waking up.
	loopSlack = 30_000
)

// loopSide is the measured file of the open loop.
type loopSide struct {
	f           *fs.File
	begin       int64
	begun, done []int64
	err         error
}

func (l *loopSide) Due(i int) int64         { return l.begin + int64(i)*loopEvery }
func (l *loopSide) Now(t *sched.Task) int64 { return t.Now() }
func (l *loopSide) SleepUntil(t *sched.Task, at int64) {
	if d := at - t.Now(); d > 0 {
		t.Sleep(time.Duration(d))
	}
}

func (l *loopSide) Write(t *sched.Task, i int) {
	l.begun = append(l.begun, t.Now())
	if _, err := l.f.WriteAt(t, make([]byte, format.SectorSize), int64(i%loopWarmup)*format.SectorSize); err != nil {
		l.err = err
	}
	l.done = append(l.done, t.Now())
}

// openLoop measures with the student's function while another writer has i_rwsem for long, and
// compares latency by latency.
func (l Baseline) openLoop() (ok bool, text string, err error) {
	r := rig{cpus: 4, flags: format.InodeNoDataCow, opt: fs.Options{Policy: policy.MustParse("locked"), DirtyLimit: 1 << 30, DirtyBackground: 1 << 30}}
	var have []int64
	side, wrong := &loopSide{}, ""
	err = r.run(func(t *sched.Task, _ *fs.FS, f *fs.File) error {
		side.f, side.begin = f, t.Now()+loopEvery
		client := t.Go("client", func(t *sched.Task) {
			defer func() {
				if p := recover(); p != nil {
					wrong = blame(p)
				}
			}()
			have = kit.RunClient(l.Measure, t, side, loopRequests, loopWarmup)
		})
		long := t.Go("long write", func(t *sched.Task) {
			side.SleepUntil(t, side.Due(loopRequests/2))
			if _, err := f.WriteAt(t, make([]byte, loopLong), 0); err != nil {
				side.err = err
			}
		})
		t.Join(client)
		t.Join(long)
		return side.err
	})
	if err != nil || wrong != "" {
		return false, wrong, err
	}
	if len(have) != loopRequests-loopWarmup {
		return false, fmt.Sprintf("%d latencies of %d requests, of which %d do not count: want %d", len(have), loopRequests, loopWarmup, loopRequests-loopWarmup), nil
	}
	late, before := 0, side.begin // when the request before has ended
	for i := range loopRequests {
		if at := max(side.Due(i), before); side.begun[i] > at+loopSlack {
			return false, fmt.Sprintf("request %d begins %d ns after it could", i, side.begun[i]-at), nil
		}
		if before = side.done[i]; i < loopWarmup {
			continue
		}
		if side.begun[i] > side.Due(i)+loopSlack {
			late++
		}
		if want := side.done[i] - side.Due(i); have[i-loopWarmup] != want {
			return false, fmt.Sprintf("request %d was due at %d ns, began at %d and ended at %d: its latency is %d, want %d",
				i, side.Due(i)-side.begin, side.begun[i]-side.begin, side.done[i]-side.begin, have[i-loopWarmup], want), nil
		}
	}
	return true, fmt.Sprintf("%d latencies; %d requests began late, after the long write", len(have), late), nil
}

// The writers of lab 2.
const (
	crowdWriters = 16
	crowdOps     = 100 // of each
	crowdBytes   = 16 << 10
	crowdThink   = 20 * time.Microsecond
	maxOff       = 10 // per cent
	// enoughShare of what the crowd gets is all there is.
	enoughShare = 0.97
)

// rwsemWaits is a trace.Sink that adds up waits for i_rwsem.
type rwsemWaits struct{ p *kit.Profile }

func (s rwsemWaits) Waited(w trace.Wait) {
	if w.Class == "i_rwsem" {
		s.p.Waits++
		s.p.Waited += w.Nanos
	}
}

// lockProfile is a run of so many writers under policy locked.
func lockProfile(writers int) (kit.Profile, error) {
	p := kit.Profile{Writers: writers, Ops: writers * crowdOps}
	r := rig{cpus: crowdWriters, flags: format.InodeNoDataCow, opt: fs.Options{Policy: policy.MustParse("locked"), DirtyLimit: 1 << 30, DirtyBackground: 1 << 30}}
	err := r.run(func(t *sched.Task, _ *fs.FS, f *fs.File) error {
		if _, err := f.WriteAt(t, make([]byte, crowdWriters*crowdBytes), 0); err != nil {
			return err
		}
		defer trace.SetSink(trace.SetSink(rwsemWaits{&p}))
		var err error
		p.Elapsed, err = inTasks(t, writers, func(t *sched.Task, i int) error {
			buf := make([]byte, crowdBytes)
			for range crowdOps {
				t.Sleep(crowdThink)
				if _, err := f.WriteAt(t, buf, int64(i)*crowdBytes); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	})
	return p, err
}

// aloneAndCrowd are the profiles that the student predicts from.
func aloneAndCrowd() (alone, crowd kit.Profile, err error) {
	if alone, err = lockProfile(1); err == nil {
		crowd, err = lockProfile(crowdWriters)
	}
	return alone, crowd, err
}

// predictions compares the student's with the engine.
func (l Baseline) predictions() (bool, string, error) {
	alone, crowd, err := aloneAndCrowd()
	if err != nil {
		return false, "", err
	}
	worst := 0.0
	for _, n := range []int{1, 2, 4, 6, 8, 10, 12, crowdWriters} {
		p, err := lockProfile(n)
		if err != nil {
			return false, "", err
		}
		have := l.Predict(alone, crowd, n)
		perSecond := float64(p.Ops) * 1e9 / float64(p.Elapsed)
		hold := float64(crowd.Elapsed) / float64(crowd.Ops)
		for _, x := range []struct {
			what             string
			have, want, unit float64
		}{
			// Below a hold, and below a writer, a wait is chance: who comes when.
			{"writes a second", have.PerSecond, perSecond, 0},
			{"nanoseconds of a wait", have.Wait, float64(p.Waited) / float64(p.Ops), 1.5 * hold},
			{"writers that wait", have.Waiting, float64(p.Waited) / float64(p.Elapsed), 0.6},
		} {
			off := math.Abs(x.have - x.want)
			if !(off <= max(x.want*maxOff/100, x.unit)) {
				return false, fmt.Sprintf("%d writers: predicted %.5g %s, and it is %.5g", n, x.have, x.what, x.want), nil
			}
			if off > x.unit {
				worst = max(worst, off/x.want*100)
			}
		}
	}
	return true, fmt.Sprintf("off by %.1f %% at most", worst), nil
}

// enough compares with the smallest number of writers that come to what the crowd does.
func (l Baseline) enough() (bool, string, error) {
	alone, crowd, err := aloneAndCrowd()
	if err != nil {
		return false, "", err
	}
	have := l.Enough(alone, crowd)
	all := float64(crowd.Ops) / float64(crowd.Elapsed)
	for n := 1; ; n++ {
		p, err := lockProfile(n)
		if err != nil {
			return false, "", err
		}
		if x := float64(p.Ops) / float64(p.Elapsed); x >= all*enoughShare {
			return have == n, fmt.Sprintf("%d writers, want %d: they have %.0f %% of what %d have", have, n, x/all*100, crowdWriters), nil
		}
	}
}
