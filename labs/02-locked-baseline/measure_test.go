package lockedbaseline

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"btrlab/internal/sched"
	"btrlab/labs/kit"
	"btrlab/labs/kit/starter"
)

func TestMain(m *testing.M) {
	os.Exit(starter.Main(m, "measure.go", "c45518088e838b1b6724f8b4f71dc9a18d27ee659e31f9b18cbd240f74760549"))
}

// fakeClient has a request due every 10 ns. Each takes 1 ns, and the third one 25.
type fakeClient struct{ now int64 }

func (f *fakeClient) Due(i int) int64                    { return int64(10 * i) }
func (f *fakeClient) Now(*sched.Task) int64              { return f.now }
func (f *fakeClient) SleepUntil(_ *sched.Task, at int64) { f.now = max(f.now, at) }
func (f *fakeClient) Write(_ *sched.Task, i int)         { f.now += []int64{1, 1, 25, 1, 1, 1}[i] }

// TestMeasure: requests that wait for the slow one have waited. More is in btrlab lab grade 2.
func TestMeasure(t *testing.T) {
	l := kit.RunClient(Measure, &sched.Task{}, &fakeClient{}, 6, 1)
	if want := []int64{1, 25, 16, 7, 1}; !slices.Equal(l, want) {
		t.Fatalf("have %v want %v", l, want)
	}
}

// TestTogether: clients that are measured at once have nothing in common. go test -race says so,
// too.
func TestTogether(t *testing.T) {
	alone := kit.RunClient(Measure, &sched.Task{}, &fakeClient{}, 6, 1)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				l := kit.RunClient(Measure, &sched.Task{}, &fakeClient{}, 6, 1)
				if runtime.Gosched(); !slices.Equal(l, alone) {
					t.Errorf("beside others %v, alone %v", l, alone)
				}
			}
		})
	}
	all.Wait()
}

func TestSummarize(t *testing.T) {
	s := Summarize([][]int64{{30, 10}, {20, 40, 1000}}, 10_000)
	if want := (kit.Summary{Ops: 5, PerSecond: 500_000, Mean: 220, P50: 30, P99: 1000}); s != want {
		t.Errorf("have %+v want %+v", s, want)
	}
}

func TestBins(t *testing.T) {
	for _, ns := range []int64{0, 1, 100, 5_000, 1_000_000, 3_000_000_000} {
		if b := Bin(ns); b < 0 || b >= 2048 || max(Value(b)-ns, ns-Value(b))*128 > ns {
			t.Errorf("%d ns are in bin %d, which stands for %d ns", ns, b, Value(b))
		}
	}
}

// TestPredict: a hold of 10 ns and 90 ns besides.
func TestPredict(t *testing.T) {
	alone, crowd := kit.Profile{Writers: 1, Ops: 10, Elapsed: 1000}, kit.Profile{Writers: 20, Ops: 200, Elapsed: 2000, Waits: 200, Waited: 20_000}
	for n, want := range map[int]kit.Prediction{1: {PerSecond: 1e7}, 5: {PerSecond: 5e7}, 10: {PerSecond: 1e8}, 20: {PerSecond: 1e8, Wait: 100, Waiting: 10}} {
		near := func(have, want float64) bool { return have >= want*0.999 && have <= want*1.001 }
		if p := Predict(alone, crowd, n); !near(p.PerSecond, want.PerSecond) || !near(p.Wait, want.Wait) || !near(p.Waiting, want.Waiting) {
			t.Errorf("%d writers: have %+v want %+v", n, p, want)
		}
	}
	if n := Enough(alone, crowd); n != 10 {
		t.Errorf("enough are %d, want 10", n)
	}
}
