package grade

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestStop: the row in hand fails with the reason; the rows after it are left to the next process,
// or fail as not run.
func TestStop(t *testing.T) {
	names := func(rows []Row) (l []string) {
		for _, r := range rows {
			l = append(l, r.Name)
		}
		return l
	}
	done := Row{Name: "lock-identical", Pass: true, Score: 8, Max: 8}
	g := ledger{Rows: []Row{done}, At: "lock-nested"}
	g.stop(RangeLock{}, "it hangs", false)
	if got := names(g.Rows); !slices.Equal(got, []string{"lock-identical", "lock-nested"}) || g.Rows[1].Result != "it hangs" || g.Rows[1].Max != 7 || g.At != "" {
		t.Errorf("%+v", g)
	}
	g.At = "lock-overlap"
	g.stop(RangeLock{}, "it hangs again", true)
	want := RangeLock{}.Workloads()
	if len(g.Rows) != len(want) || g.Rows[2].Result != "it hangs again" || g.Rows[3].Result != "not run: the program was stopped before" {
		t.Fatalf("%+v", g.Rows)
	}
	for i, w := range want {
		if g.Rows[i].Name != w.name || i > 0 && (g.Rows[i].Pass || g.Rows[i].Score != 0) {
			t.Errorf("row %d is %+v, want %s", i, g.Rows[i], w.name)
		}
	}
}

// TestGoesOn: a process takes the rows of its ledger as they are, judges the others, and keeps the
// rule that a ratio counts only where nothing is violated, whichever process has seen the
// violation.
func TestGoesOn(t *testing.T) {
	var before []Row
	for _, w := range starters[5].Workloads() {
		before = append(before, Row{Name: w.name, Asks: w.asks, Max: w.points, Pass: true, Score: w.points, Result: "of an earlier process"})
	}
	last := len(before) - 1
	var at []string
	run := &Run{Before: before[:last], Keep: func(done []Row, name string) { at = append(at, name) }}
	before[3].Pass, before[3].Score, before[3].Result = false, 0, "stopped"
	rows := Judge(RangeLock{}, run)
	if len(rows) != len(before) || rows[0].Result != "of an earlier process" || rows[3].Result != "stopped" || rows[last].Result != "not measured: a workload is violated" {
		t.Errorf("%+v", rows)
	}
	if !slices.Equal(at, []string{"virtual-time"}) {
		t.Errorf("judged %q, want what was left", at)
	}
}

// TestLedgerFile: what is written is read again; a file that is not there is an empty ledger, half
// a file an error.
func TestLedgerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if g, err := readLedger(path); err != nil || len(g.Rows) > 0 || g.Done {
		t.Errorf("no file: %+v, %v", g, err)
	}
	g := ledger{Rows: []Row{{Name: "a", Max: 3}}, At: "b", Wrong: "w", Done: true}
	if err := g.write(path); err != nil {
		t.Fatal(err)
	}
	if got, err := readLedger(path); err != nil || got.At != "b" || got.Wrong != "w" || !got.Done || len(got.Rows) != 1 || got.Rows[0].Name != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte(`{"rows":[`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readLedger(path); err == nil {
		t.Error("half a ledger is read")
	}
}

// TestLimit: a grading that is out of time has a report that says so, and no error; one that is
// cancelled has no report.
func TestLimit(t *testing.T) {
	r, err := Grade(t.Context(), root(t), lab(t, 4), Options{Limit: time.Nanosecond})
	if err != nil || len(r.Rows) != 1 || r.Score != 0 || r.Max != 100 || r.Rows[0].Result != "stopped: the grading took longer than 1ns" {
		t.Errorf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Grade(ctx, root(t), lab(t, 4), Options{Limit: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("have %v, want %v", err, context.Canceled)
	}
}

// TestEnding: of what a program prints the beginning and the end are kept, however much it is.
func TestEnding(t *testing.T) {
	var e ending
	line := []byte(strings.Repeat("x", 1023) + "\n")
	_, _ = e.Write([]byte("first\n"))
	for range 10 << 10 {
		if n, err := e.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = e.Write([]byte("last\n"))
	if b := e.bytes(); len(b) > maxFirst+2*maxLast || !strings.HasPrefix(string(b), "first\nx") || !strings.HasSuffix(string(b), "x\nlast\n") {
		t.Errorf("%d bytes of 10 MiB are kept: %.20q ... %q", len(b), b, b[len(b)-20:])
	}
	var small ending
	_, _ = small.Write([]byte("all"))
	if string(small.bytes()) != "all" {
		t.Errorf("%q", small.bytes())
	}
}
