package reproduce

import (
	"testing"
	"time"

	"btrlab/internal/measure/seeds"
)

// The fio run of seed 000 went on for 175 ms before the patches and for 44 ms with them, after the
// 300 s that it was asked for: what the last request took that was in flight then. A moment has the
// time until the last of the requests that are in flight then is back, and a moment without any,
// and one after the end, has none.
func TestDrains(t *testing.T) {
	const ms = int64(time.Millisecond)
	var f inFlight
	if d := f.drains(1000 * ms); d != nil || d.May(0) {
		t.Errorf("of no request: %v", d)
	}
	f.add(0, 10*ms)         // moment 0
	f.add(40*ms, 70*ms)     // at 50
	f.add(45*ms, 100*ms)    // at 50, later; it is back at 100
	f.add(101*ms, 149*ms)   // between two moments
	f.add(190*ms, 270*ms)   // at 200 and 250
	f.add(299*ms, 300*ms+1) // at 300, the end
	f.add(349*ms, 400*ms)   // after it
	have := f.drains(300 * ms)
	// 10 at 0, 50 at 50, 70 at 200, 20 at 250, 1 ns at 300
	if want := (Drains{Moments: 5, Low: 0, Median: 20, High: 50}); *have != want {
		t.Errorf("have %+v want %+v", *have, want)
	}
	if !have.May(0) || !have.May(50) || have.May(50.5) || f.end != 400*ms {
		t.Errorf("%+v, end %v", have, f.end)
	}
}

// A device whose requests take longer for longer drains longer, and the drain of the run itself is
// one that its moments have: the last request is in flight when the job ends.
func TestDrainOfTheDevice(t *testing.T) {
	s := *seeds.Get("000")
	run := func(share float64) *Row {
		c := s.Study.Calibration
		c.Share = share
		r, err := Run(&s, Options{Calibration: c, Seconds: 0.4, Size: 1 << 30, Published: true})
		if err != nil {
			t.Fatal(err)
		}
		if r.Rows[0].Drains == nil || r.Rows[0].Simulated.DrainMs <= 0 {
			t.Fatalf("%+v: no drain", r.Rows[0])
		}
		return r.Rows[1]
	}
	none, half := run(0), run(0.5)
	if half.Drains.Median < 2*none.Drains.Median || half.Simulated.DrainMs < 2*none.Simulated.DrainMs {
		t.Errorf("without transfer %v, %g ms; with half of the time %v, %g ms: want twice as long at least", none.Drains, none.Simulated.DrainMs, half.Drains, half.Simulated.DrainMs)
	}
}
