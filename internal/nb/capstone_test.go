package nb

import (
	"strings"
	"testing"

	"btrlab/internal/study/course"
	"btrlab/internal/study/grade"
)

// TestGraded: the tables and the picture of lab 12, with the student's policy measured and without.
func TestGraded(t *testing.T) {
	job := grade.Row{Name: "time-alone", Max: 5, Pass: true, Times: []grade.Time{{Policy: grade.Yours, Nanos: 50}, {Policy: "locked", Nanos: 100}, {Policy: "modern", Nanos: 400}},
		Locks: []grade.Wait{{Policy: grade.Yours, Lock: "i_rwsem", Count: 3, Nanos: 2_500_000}}}
	row := grade.Row{Name: "writers", Max: 10, Score: 10, Pass: true, Parts: []grade.Part{{Name: "two-writers-same", Pass: true, Result: "exhausted: 3 schedules"}}}
	g := &Graded{&course.Report{Dir: "mine", Score: 10, Max: 100, Rows: []grade.Row{row, job, {Name: "text"}}}}
	for have, want := range map[string]string{
		g.Table().String():     "writers     10 of 10",
		g.Scenarios().String(): "writers  two-writers-same  yes   exhausted: 3 schedules",
		g.Measured().String():  "time-alone  2.00   1.00    0.25",
		g.Waits().String():     "time-alone  i_rwsem        3      2.500",
	} {
		if !strings.Contains(have, want) {
			t.Errorf("have %q want %q in it", have, want)
		}
	}
	fig, err := g.Plot()
	if err != nil || len(fig.PNG) == 0 || !strings.Contains(fig.Alt, "yours time-alone 2.00; locked time-alone 1.00; modern time-alone 0.25.") {
		t.Errorf("%v %q", err, fig.Alt)
	}
	if !g.Kept() {
		t.Error("a text that is missing is no scenario that is violated")
	}
	row.Pass = false
	if g = (&Graded{&course.Report{Rows: []grade.Row{row}}}); g.Kept() {
		t.Error("a violated row is kept")
	}
	if _, err := g.Plot(); err == nil {
		t.Error("a picture of nothing")
	}
	if _, err := Capstone(".", MaxSchedules+1); err == nil || !strings.Contains(err.Error(), "want 0 to") {
		t.Errorf("%v", err)
	}
}
