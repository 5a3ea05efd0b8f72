package screen

import (
	"strings"
	"testing"

	"btrlab/internal/study/levels"
)

// TestLevelOnScreen: the stepper plays a level: its story and program first, then the lines; x says
// never, an end that breaks the rule is a schedule.
func TestLevelOnScreen(t *testing.T) {
	l, err := levels.Lookup("three-forks")
	if err != nil {
		t.Fatal(err)
	}
	begin := func() *Stepper {
		st, err := NewLevel(l)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	st := begin()
	screen := simulated(t, 80, 24)
	text := look(st, screen)
	for _, want := range []string{"Goal: find a schedule after which this is not so, or say never: every task", "Three philosophers", "0 plato     1 hypatia    2 laozi", "lock f      lock g       lock h", "say never"} {
		if !strings.Contains(text, want) {
			t.Errorf("the first screen has no %q:\n%s", want, text)
		}
	}
	press(st, " ")
	if text = look(st, screen); !strings.Contains(text, "lock h") || strings.Contains(text, "Three philosophers") {
		t.Errorf("the program does not begin:\n%s", text)
	}
	press(st, "021")
	if text = look(st, screen); st.Answered() != "4:2,5:1" || !strings.Contains(text, "VIOLATED (deadlock)") || !strings.Contains(text, "lab run 0 three-forks '4:2,5:1'") {
		t.Errorf("have %q\n%s", st.Answered(), text)
	}
	st = begin()
	if press(st, " "); st.Answered() != "" {
		t.Errorf("have %q before the first step", st.Answered())
	}
	if press(st, "f"); st.Answered() != "" {
		t.Errorf("have %q for an end that keeps the rule", st.Answered())
	}
	if press(st, "x") || st.Answered() != levels.Never {
		t.Errorf("x does not leave, or says %q", st.Answered())
	}
}
