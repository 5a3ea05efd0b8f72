package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/study/grade"
)

// TestStop: the row in hand fails with the reason; the rows after it are left to the next process,
// or fail as not run.
func TestStop(t *testing.T) {
	names := func(rows []grade.Row) (l []string) {
		for _, r := range rows {
			l = append(l, r.Name)
		}
		return l
	}
	want := []grade.Row{{Name: "lock-identical", Max: 8}, {Name: "lock-nested", Max: 7}, {Name: "lock-overlap", Max: 7}, {Name: "virtual-time", Max: 20}}
	done := grade.Row{Name: "lock-identical", Pass: true, Score: 8, Max: 8}
	g := ledger{Rows: []grade.Row{done}, At: "lock-nested"}
	g.stop(want, "it hangs", false)
	if got := names(g.Rows); !slices.Equal(got, []string{"lock-identical", "lock-nested"}) || g.Rows[1].Result != "it hangs" || g.Rows[1].Max != 7 || g.At != "" {
		t.Errorf("%+v", g)
	}
	g.At = "lock-overlap"
	g.stop(want, "it hangs again", true)
	if len(g.Rows) != len(want) || g.Rows[2].Result != "it hangs again" || g.Rows[3].Result != "not run: the program was stopped before" {
		t.Fatalf("%+v", g.Rows)
	}
	for i, w := range want {
		if g.Rows[i].Name != w.Name || i > 0 && (g.Rows[i].Pass || g.Rows[i].Score != 0) {
			t.Errorf("row %d is %+v, want %s", i, g.Rows[i], w.Name)
		}
	}
}

// TestLedgerFile: what is written is read again; a file that is not there is an empty ledger, half
// a file an error.
func TestLedgerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if g, err := readLedger(path); err != nil || len(g.Rows) > 0 || g.Done {
		t.Errorf("no file: %+v, %v", g, err)
	}
	g := ledger{Rows: []grade.Row{{Name: "a", Max: 3}}, At: "b", Wrong: "w", Done: true}
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
