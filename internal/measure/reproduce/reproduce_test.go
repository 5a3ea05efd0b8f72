package reproduce_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"testing"

	"btrlab/internal/measure/reproduce"
)

// A reproduction is a function of its options: a hundred runs, on one and on two processors, give the same JSON to the last byte.
// Noise and garbage collection are random numbers of a seed; another seed gives other bytes.
func TestSameBytes(t *testing.T) {
	n := 100
	if testing.Short() {
		n = 20
	}
	run := func(procs int, seed uint64) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		o := reproduce.Options{Calibration: reproduce.Default002, Seconds: 0.004, Size: 1 << 20}
		o.Calibration.Seed = seed
		r, err := reproduce.Seed002(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			if row.Writes == 0 || row.Stats.Hits == 0 {
				t.Fatalf("%s: %d writes, %d hits of noise: nothing that could differ", row.Name, row.Writes, row.Stats.Hits)
			}
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	want := run(1, 1)
	for i := 1; i < n; i++ {
		if have := run(1+i%2, 1); !bytes.Equal(have, want) {
			t.Fatalf("run %d:\n%s\nthe first:\n%s", i, have, want)
		}
	}
	if bytes.Equal(run(1, 2), want) {
		t.Error("another seed, the same bytes")
	}
}
