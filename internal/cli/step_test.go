package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// simulated is a screen of w by h cells that nobody sees.
func simulated(t *testing.T, w, h int) tcell.SimulationScreen {
	t.Helper()
	s := tcell.NewSimulationScreen("UTF-8")
	if err := s.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Fini)
	s.SetSize(w, h)
	return s
}

// look is what stands on the screen, a line per row.
func look(st *stepper, s tcell.SimulationScreen) string {
	st.draw(s)
	s.Show()
	cells, w, h := s.GetContents()
	var b strings.Builder
	for y := range h {
		var line strings.Builder
		for x := range w {
			line.WriteString(string(cells[y*w+x].Runes))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

func press(st *stepper, keys string) (stay bool) {
	stay = true
	for _, r := range keys {
		stay = st.key(tcell.NewEventKey(tcell.KeyRune, r, tcell.ModNone))
	}
	return stay
}

// A student loses the truncate at the keyboard of an 80x24 terminal: the schedule that explore finds, chosen step by
// step, taken back and chosen again.
func TestStepTruncateRace(t *testing.T) {
	s, err := scenario.Lookup("truncate-race")
	if err != nil {
		t.Fatal(err)
	}
	r, err := scenario.Run(s, policy.MustParse("unlocked"), scenario.Options{})
	if err != nil || r.Verdict != explore.Violated {
		t.Fatalf("%v %+v", err, r)
	}
	var at, task int
	if n, err := fmt.Sscanf(r.Schedule, "%d:%d", &at, &task); n != 2 || strings.Contains(r.Schedule, ",") {
		t.Fatalf("schedule %q is not one preemption: %v", r.Schedule, err)
	}
	st, err := newStepper(s, "unlocked", "", false)
	if err != nil {
		t.Fatal(err)
	}
	screen := simulated(t, 80, 24)
	text := look(st, screen)
	for _, want := range []string{"Goal: make the truncate get lost", "i_size 16K", "pages cccc", "0 writer", "1 truncate", "can run", "write [8K, 16K)", "holds nothing", "q quit"} {
		if !strings.Contains(text, want) {
			t.Errorf("the first screen has no %q:\n%s", want, text)
		}
	}
	for st.play.At() < at {
		press(st, "n")
	}
	press(st, fmt.Sprint(task))
	if text = look(st, screen); !strings.Contains(text, "schedule '"+r.Schedule+"'") || !strings.Contains(text, fmt.Sprintf(">%d ", at)) || !strings.Contains(text, "dio 1") {
		t.Errorf("the preemption is not on the screen:\n%s", text)
	}
	press(st, "u")
	if text = look(st, screen); !strings.Contains(text, "schedule ''") {
		t.Errorf("the step was not taken back:\n%s", text)
	}
	press(st, fmt.Sprint(task))
	press(st, "f")
	if text = look(st, screen); !strings.Contains(text, "VIOLATED (oracle)") || !strings.Contains(text, "ended") {
		t.Errorf("the truncate is not lost:\n%s", text)
	}
	if press(st, "9"); st.message == "" {
		t.Error("there is no task 9, and nobody says so")
	}
	if end := st.parting(); !strings.Contains(end, "replay: "+r.Replay) {
		t.Errorf("parting words %q, want the command %q", end, r.Replay)
	}
	press(st, "b?")
	if text = look(st, screen); !strings.Contains(text, "take the last step back") {
		t.Errorf("no help:\n%s", text)
	}
	if press(st, " ") && press(st, "q") {
		t.Error("q does not leave")
	}
}

// Who waits is told for what and for whom, and cannot be chosen.
func TestStepWaits(t *testing.T) {
	s, err := scenario.Lookup("truncate-race")
	if err != nil {
		t.Fatal(err)
	}
	st, err := newStepper(s, "locked", "", false)
	if err != nil {
		t.Fatal(err)
	}
	for len(st.play.Now().Tasks[0].Held) == 0 {
		press(st, "0")
	}
	for st.play.Can(1) {
		press(st, "1")
	}
	before := st.play.At()
	press(st, "1")
	if st.play.At() != before || !strings.Contains(st.message, "1 truncate waits for i_rwsem") || !strings.Contains(st.message, "0 writer must go on first") {
		t.Errorf("at %d, before %d: %q", st.play.At(), before, st.message)
	}
	if text := look(st, simulated(t, 80, 24)); !strings.Contains(text, "WAITS for i_rwsem") || !strings.Contains(text, "(task 0)") {
		t.Errorf("\n%s", text)
	}
}

// Every size of terminal and every scenario has a picture.
func TestStepDraws(t *testing.T) {
	for _, s := range scenario.All() {
		st, err := newStepper(s, "unlocked", "", false)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		for _, size := range [...][2]int{{80, 24}, {40, 16}, {30, 5}, {200, 60}} {
			screen := simulated(t, size[0], size[1])
			look(st, screen)
			press(st, "nnnr")
			st.key(tcell.NewEventKey(tcell.KeyRight, 0, tcell.ModNone))
			look(st, screen)
			press(st, "f")
			if text := look(st, screen); size[1] >= 24 && !strings.Contains(text, "KEPT") && !strings.Contains(text, "VIOLATED") {
				t.Errorf("%s: no verdict:\n%s", s.Name, text)
			}
			press(st, "b")
		}
	}
}

// The loop obeys keys as they come and leaves.
func TestStepLoop(t *testing.T) {
	s, err := scenario.Lookup("truncate-race")
	if err != nil {
		t.Fatal(err)
	}
	st, err := newStepper(s, "unlocked", "", false)
	if err != nil {
		t.Fatal(err)
	}
	screen := simulated(t, 80, 24)
	start := st.play.At()
	done := make(chan struct{})
	go func() {
		st.loop(screen)
		close(done)
	}()
	screen.InjectKey(tcell.KeyRune, 'n', tcell.ModNone)
	screen.InjectKey(tcell.KeyEnter, 0, tcell.ModNone)
	screen.InjectKey(tcell.KeyUp, 0, tcell.ModNone)
	screen.InjectKey(tcell.KeyEscape, 0, tcell.ModNone)
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the loop does not end")
	}
	if st.play.At() != start+1 {
		t.Errorf("at %d, want %d", st.play.At(), start+1)
	}
}

// Without a terminal step says what to use instead, and wrong words are usage errors.
func TestStepRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"step", "truncate-race"}, 1, "no terminal"},
		{[]string{"step", "no-such"}, 2, "unknown scenario"},
		{[]string{"step", "truncate-race", "0:63"}, 1, "0:63"},
		{[]string{"step", "truncate-race", "--policy", "nothing"}, 2, "nothing"},
	} {
		var out, errw bytes.Buffer
		if code := Main(c.args, strings.NewReader(""), &out, &errw); code != c.code || !strings.Contains(errw.String(), c.want) {
			t.Errorf("%v: exit %d, want %d, %q", c.args, code, c.code, errw.String())
		}
	}
}
