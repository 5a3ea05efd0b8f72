package levels

import (
	"strings"
	"testing"

	"btrlab/internal/sched/explore"
)

// The example is a program whose lost update the explorer finds.
func TestParse(t *testing.T) {
	l, err := Parse(TextExample)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Tasks) != 2 || len(l.Tasks[0].Lines) != 4 || l.Rule() != "x is 2 at the end" || len(l.Locks) != 1 {
		t.Errorf("%+v", l)
	}
	if r := l.Search(); r.Verdict != explore.Violated || r.Preemptions != 1 {
		t.Errorf("%s with %d preemptions", r.Verdict, r.Preemptions)
	}
	fixed := strings.Replace(strings.Replace(TextExample, "  unlock m\n  x = r + 1\n", "  x = r + 1\n  unlock m\n", 1), "rule x is 2", "rule x is 7 or 2", 1)
	if l, err = Parse(fixed); err != nil {
		t.Fatal(err)
	}
	if r := l.Search(); r.Verdict != explore.Exhausted {
		t.Errorf("the fix: %s %s", r.Verdict, r.Violation.Line())
	}
	// A lock that nobody holds is let go: the verdict says so, and nothing else breaks.
	l, err = Parse("lock m\ntask a\nunlock m\ntask b\nlock m\n")
	if err != nil {
		t.Fatal(err)
	}
	if r := l.Search(); r.Verdict != explore.Violated {
		t.Errorf("an unlock of a free lock: %s", r.Verdict)
	}
}

// An error names the line and what is expected there.
func TestParseBad(t *testing.T) {
	long := "x = 0\ntask a\n" + strings.Repeat("x += 1\n", 41)
	for program, want := range map[string]string{
		"":                                    `have 0 tasks, want two or more`,
		"x = 0\n\ntask a\nx -= 1":             `line 4: have "x -= 1", want lock, unlock, = or +=`,
		"x = one":                             `line 1: have "x = one", want a new name, = and a number from -1000 to 1000: x = 0`,
		"x = 0\nx = 1":                        `line 2: have "x = 1", want a new name`,
		"max = 0":                             `line 1: have "max = 0", want a new name`,
		"lock":                                `line 1: have "lock", want lock and a new name`,
		"rule x is 2":                         `line 1: have "rule x is 2", want one rule about a word of the lines before`,
		"x = 0\nrule x is 2 or b":             `line 2: have "rule x is 2 or b", want numbers with "or" between them`,
		"x = 0\ntask a\nx = r + 1":            `line 3: have "x = r + 1", want numbers and names that the task has read`,
		"x = 0\ntask a\nr = x\ntask b\nx = r": `line 5: have "x = r", want numbers and names that the task has read`,
		"task a\nlock m":                      `line 2: have "lock m", want a lock that is named before the tasks`,
		"hello":                               `line 1: have "hello", want a word (x = 0), a lock (lock m), a rule`,
		"x = 0\ntask a\nx += 1\ntask a":       `line 4: have "task a", want task and a name that no other task has`,
		"x = 0\ntask a\ntask b\nx += 1":       `task a has no step`,
		long:                                  `line 43: have "x += 1", want at most 40 steps`,
		strings.Repeat("# ", 2001):            `have 4002 bytes want at most 4000`,
		"a = 0\nb = 0\nc = 0\nd = 0\ne = 0\nf = 0\ng = 0\nh = 0\nlock i": `line 9: have "lock i", want at most 8 words and locks`,
	} {
		if _, err := Parse(program); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: have %v want %s", program, err, want)
		}
	}
}
