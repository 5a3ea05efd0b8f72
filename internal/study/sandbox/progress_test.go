package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
)

// What the grading program tells comes to whoever grades, by way of a file that is not written more
// often than it is read.
func TestProgressFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json"+progressSuffix)
	at := func(workload string, n int, took time.Duration) Progress {
		return Progress{workload, explore.Progress{Method: explore.Bound, Schedules: n, Took: took, Preemptions: 1, Total: 99.5}}
	}
	got := make(chan Progress, 100)
	unwatch := watchFile(path, func(p Progress) { got <- p })
	tell := toFile(path)
	tell(at("a", 1, 3*time.Second))
	if p := <-got; p != at("a", 1, 3*time.Second) {
		t.Errorf("have %+v", p)
	}
	unwatch()
	for _, c := range []struct {
		told Progress
		want int // schedules in the file afterwards
	}{
		{at("a", 2, 3*time.Second+progressEvery/2), 1},
		{at("a", 3, 3*time.Second+progressEvery), 3},
		{at("b", 4, 0), 4},             // the next workload
		{at("b", 5, progressEvery), 5}, //
		{at("b", 6, 0), 6},             // and its second search
	} {
		tell(c.told)
		var p Progress
		b, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(b, &p) != nil || p.Schedules != c.want {
			t.Errorf("after %+v the file has %s (%v)", c.told, b, err)
		}
	}
	watchFile(path, nil)() // nobody wants to know
}

// A row is told while those after it are judged, and once; the last ones are told at the end.
func TestRowsAsTheyEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	keep := func(rows ...grade.Row) {
		t.Helper()
		if err := (&ledger{Rows: rows, At: "next"}).write(path); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan string, 100)
	unwatch := watchRows(path, OnceEach(func(name, verdict string) { got <- name + " " + verdict }))
	keep(grade.Row{Name: "a", Pass: true})
	if r := <-got; r != "a ok" {
		t.Errorf("have %s", r)
	}
	keep(grade.Row{Name: "a", Pass: true}, grade.Row{Name: "b", Score: 5, Max: 10})
	unwatch()
	if r := <-got; r != "b partly" || len(got) > 0 {
		t.Errorf("have %s and %d more", r, len(got))
	}
	OnceEach(nil)("a", "ok")
}
