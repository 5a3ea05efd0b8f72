package course

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
)

// TestStops: code that recurses without end in one row, eats memory in the next and hangs in a
// third loses these rows, each with its line and the reason, and keeps what it had before. After
// the third nothing more is run.
func TestStops(t *testing.T) {
	need.Long(t)
	if testing.Short() {
		t.Skip("builds a program and lets it hang for three seconds of processor time")
	}
	l, dir := lab(t, 5), t.TempDir()
	b, err := os.ReadFile(filepath.Join(l.Dir(root(t)), "instructor", "_solution", "rangelock.go"))
	if err != nil {
		t.Fatal(err)
	}
	const lock = "	l.mu.Lock(t)\n	for "
	if strings.Count(string(b), lock) != 1 {
		t.Fatalf("the solution has no %q", lock)
	}
	put(t, dir, "rangelock.go", strings.Replace(string(b), lock, `	switch {
	case end == 4:
		l.Lock(t, start, end)
	case start == 0 && end == 36<<10:
		for eaten := [][]byte{}; ; {
			eaten = append(eaten, make([]byte, 1<<16))
		}
	case end > 36<<10 && end < 1<<20: // and not where every row is asked as well
		for {
		}
	}
`+lock, 1))
	r, err := Grade(t.Context(), root(t), l, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	stopped := map[string]string{"lock-waiters": "calls itself without end", "two-writers-same": "more than 1 GiB of memory", "two-writers-nested": "3s of processor time"}
	ran, score := true, 0.0
	for _, x := range r.Rows {
		why, stops := stopped[x.Name]
		switch {
		case stops:
			if x.Pass || !strings.Contains(x.Result, why) || !strings.HasPrefix(x.Result, "rangelock.go:") || strings.Contains(x.Result, "\n") {
				t.Errorf("%s: have %q, want the line and %q", x.Name, x.Result, why)
			}
			ran = x.Name != "two-writers-nested"
		case ran:
			score += x.Max
			if !x.Pass || x.Score != x.Max {
				t.Errorf("%s: %+v", x.Name, x)
			}
		case x.Pass || x.Result != "not run: the program was stopped before":
			t.Errorf("%s: %+v", x.Name, x)
		}
	}
	if len(r.Rows) != len(l.judge.Workloads()) || r.Score != score || score != 28 || r.Max != 100 {
		t.Errorf("%d rows, %g of %g points, want %g\n%s", len(r.Rows), r.Score, r.Max, score, text(r))
	}
}

// TestProcessorTime: a submission has a limit of processor time, whatever its rows may take, and
// the report says that it was this one, and where.
func TestProcessorTime(t *testing.T) {
	need.Long(t)
	l := lab(t, 5)
	b, err := os.ReadFile(filepath.Join(l.Dir(root(t)), "instructor", "_solution", "rangelock.go"))
	if err != nil {
		t.Fatal(err)
	}
	const lock = "	l.mu.Lock(t)\n	for "
	for name, loop := range map[string]string{"a loop": "for {\n}", "a loop that prints": "for {\nprintln(\"fatal error: all points, please\")\n}"} {
		dir := t.TempDir()
		put(t, dir, "rangelock.go", strings.Replace(string(b), lock, "	"+loop+"\n"+lock, 1))
		r, err := Grade(t.Context(), root(t), l, Options{Dir: dir, Options: sandbox.Options{CPU: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		if x := r.Rows[0]; !strings.HasPrefix(x.Result, "rangelock.go:") || !strings.HasSuffix(x.Result, ": stopped: the submission took more than 1s of processor time") {
			t.Errorf("%s: %+v", name, x)
		}
		if x := r.Rows[1]; r.Score != 0 || len(r.Rows) != len(l.judge.Workloads()) || x.Result != "not run: the program was stopped before" {
			t.Errorf("%s: %d rows, %g points: %+v", name, len(r.Rows), r.Score, x)
		}
	}
}
