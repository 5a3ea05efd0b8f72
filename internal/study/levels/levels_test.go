package levels

import (
	"strings"
	"testing"

	"btrlab/internal/sched/explore"
)

// TestAll: each level is broken by as few preemptions as stated, or by none of its schedules; the
// answer wins, and the other one loses.
func TestAll(t *testing.T) {
	want := map[string]struct {
		kind        explore.Kind // OK for a level that nothing breaks
		preemptions int
	}{
		"lost-update":   {explore.KindOracle, 1},
		"three-lost":    {explore.KindOracle, 1},
		"one-lock":      {},
		"short-lock":    {explore.KindOracle, 1},
		"two-locks":     {explore.KindOracle, 1},
		"one-step":      {},
		"three-each":    {explore.KindOracle, 4},
		"two-forks":     {explore.KindDeadlock, 1},
		"three-forks":   {explore.KindDeadlock, 1},
		"fork-order":    {},
		"lost-truncate": {explore.KindOracle, 1},
	}
	if len(All) != len(want) {
		t.Errorf("have %d levels want %d", len(All), len(want))
	}
	for _, l := range All {
		t.Run(l.Name, func(t *testing.T) {
			if found, err := Lookup(l.Name); err != nil || found != l {
				t.Errorf("not found by its name: %v", err)
			}
			if l.Title == "" || l.Story == "" || l.Moral == "" {
				t.Error("a level without words")
			}
			w, r := want[l.Name], l.Search()
			if r.Kind != w.kind || w.kind == explore.OK && r.Verdict != explore.Exhausted || w.kind != explore.OK && r.Preemptions != w.preemptions {
				t.Fatalf("have %s %q with %d preemptions, want %q with %d", r.Verdict, r.Kind, r.Preemptions, w.kind, w.preemptions)
			}
			t.Logf("%s, %q", r.Bound, r.Schedule)
			broken := w.kind != explore.OK
			if v := l.Judge(r.Schedule); v.Won != broken || !v.Fits || v.Trace == nil || v.Trace.Kind != w.kind {
				t.Errorf("the schedule %q: %+v", r.Schedule, v)
			}
			if v := l.Judge(" Never "); v.Won == broken || !v.Fits || v.Schedules != r.Schedules || (v.Trace != nil) != broken {
				t.Errorf("never: %+v", v)
			}
			if v := l.Judge(""); v.Won || !v.Fits {
				t.Errorf("the default order breaks it: %+v", v)
			}
			for _, bad := range []string{"often", "0:9", "2", "99:1"} {
				if v := l.Judge(bad); v.Won || v.Fits {
					t.Errorf("%q: %+v", bad, v)
				}
			}
		})
	}
}

// TestBadLines: a text that is no program is refused with the line.
func TestBadLines(t *testing.T) {
	for line, want := range map[string]string{
		"lock n":        "one of the locks m",
		"lock":          "lock, unlock, = or +=",
		"x -= 1":        "lock, unlock, = or +=",
		"r = s":         "a shared word on one side",
		"x = r":         "numbers and names that the task has read",
		"x = 1 + y":     "numbers and names that the task has read",
		"x = max(1, q)": "numbers and names that the task has read",
		"r += 1":        "a shared word on one side",
	} {
		l := Level{Name: "bad", Words: []Word{{"x", 0}}, Locks: []string{"m"}, Tasks: []Task{{"a", []string{"lock m", line}}}}
		if _, err := l.compile(); err == nil || !strings.Contains(err.Error(), "task a, line 2: bad line, have ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: have %v want %s", line, err, want)
		}
	}
}
