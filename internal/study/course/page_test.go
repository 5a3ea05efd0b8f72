package course

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/study/grade"
)

// TestPage: the page has what was proved and measured, the student's text, and the rubric with a
// line for the teacher.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "REPORT.md"), []byte("# Mine\n\n## Idea\n\nPages | keep writers apart. <!-- not this -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &Report{Lab: 12, Title: "A policy of one's own", Dir: "mine", Score: 25, Max: 90, Teacher: 10, Rows: []grade.Row{
		{Name: "writers", Asks: "two writers", Max: 10, Score: 10, Pass: true, Result: "1 scenario kept", Parts: []grade.Part{{Name: "two-writers-same", Pass: true, Result: "exhausted: 3 schedules"}}},
		{Name: "holes", Asks: "holes", Max: 6, Result: "long-write-punch: violated\nmore", Parts: []grade.Part{{Name: "long-write-punch", Pass: false, Result: "violated"}}, Replay: "btrlab lab grade 12 --replay long-write-punch=1:1"},
		{Name: "time-alone", Asks: "one writer", Max: 5, Score: 5, Pass: true, Result: "2.00 times locked", Times: []grade.Time{{Policy: grade.Yours, Nanos: 5e5}, {Policy: "locked", Nanos: 1e6}},
			Locks: []grade.Wait{{Policy: grade.Yours, Lock: "i_rwsem", Count: 3, Nanos: 2500}}, Holds: []grade.Wait{{Policy: grade.Yours, Lock: "range", Count: 2, Nanos: 1_500_000}}},
		lab(t, 12).Essay.Row(dir)}}
	var b strings.Builder
	if err := lab(t, 12).WriteMarkdown(&b, r, dir, "x.lock.pprof"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Report of lab 12: A policy of one's own\n", "25 of 100 points before the teacher",
		"| writers | 10 of 10 | 1 scenario kept |\n", "| two-writers-same | yes | exhausted: 3 schedules |\n",
		"| holes | 0 of 6 | long-write-punch: violated |\n", "| long-write-punch | **no** | violated |\n\n`btrlab lab grade 12 --replay long-write-punch=1:1`",
		"| **yours** | 2.00 | 0.50 |\n| locked | 1.00 | 1.00 |\n", "waited for:\n\n| lock or event | waits | ms |\n|---|---|---|\n| i_rwsem | 3 | 0.003 |\n",
		"held:\n\n| lock | times | ms |\n|---|---|---|\n| range | 2 | 1.500 |\n", "go tool pprof -top -tagroot=lock x.lock.pprof",
		"### Idea\n\nPages | keep writers apart.\n", "### Invariants\n\n(empty)\n",
		"| time-alone: one writer | 5 | 5 |  |\n", "| 10 | 0 | _____ of 10 |\n", "| sum | 100 | 25 | |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "not this") {
		t.Error("a comment is in the page")
	}
}
