package screen

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
	"btrlab/internal/testing/need"
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

// look returns the text of the screen, a line per row.
func look(st *Stepper, s tcell.SimulationScreen) string {
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

func press(st *Stepper, keys string) (stay bool) {
	stay = true
	for _, r := range keys {
		stay = st.key(tcell.NewEventKey(tcell.KeyRune, r, tcell.ModNone))
	}
	return stay
}

// A student loses the truncate at the keyboard of an 80x24 terminal: the schedule that explore
// finds, chosen step by step, taken back and chosen again.
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
	st, err := NewStepper(s, "unlocked", "", false)
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
	if !strings.Contains(text, "GOAL REACHED: make the truncate get lost") || !strings.Contains(text, "replay: "+r.Replay) {
		t.Errorf("the screen does not say that the goal is reached, or how to see it again:\n%s", text)
	}
	if press(st, "9"); st.message == "" {
		t.Error("there is no task 9, and nobody says so")
	}
	if end := st.Parting(); !strings.Contains(end, "replay: "+r.Replay) {
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

// chooser is a stepper on a program that has a choice: two tasks, and how much the first one
// copies.
func chooser(t *testing.T, schedule string) *Stepper {
	t.Helper()
	prog := func(w *explore.World) {
		n := 0
		w.Watch("n", func() string { return fmt.Sprint(n) })
		w.Go("copier", func(t *sched.Task) {
			w.Call(t)
			w.Note(scenario.Note{Event: scenario.Begins, Op: 1, Text: "write [0, 4K)"})
			n += w.Choose(3, "short copy")
			w.Return(t)
			w.Note(scenario.Note{Event: scenario.Returns, Op: 1})
		})
		w.Go("other", func(t *sched.Task) {
			w.Call(t)
			w.Note(scenario.Note{Event: scenario.Begins, Op: 2, Text: "read [0, 4K)"})
			w.Return(t)
			w.Note(scenario.Note{Event: scenario.Returns, Op: 2})
		})
		w.Check(func() error {
			if n == 2 {
				return errors.New("all was copied")
			}
			return nil
		})
	}
	p, err := timeline.NewPlay(schedule, func(schedule string) (*scenario.Trace, error) {
		x := explore.Replay(explore.Config{}, schedule, prog)
		return scenario.TraceOf(&x, 2), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return &Stepper{title: "toy, policy locked", goal: "copy all", play: p,
		again: func(schedule string) string { return scenario.ReplayCommand("toy", "locked", schedule, false) }}
}

// A choice of the program is one of the player: step asks for the value, takes it back, and the
// schedule has it.
func TestStepChoice(t *testing.T) {
	st := chooser(t, "")
	screen := simulated(t, 80, 24)
	press(st, "0")
	text := look(st, screen)
	if !strings.Contains(text, "next: choose short copy, 0 to 2") {
		t.Errorf("\n%s", text)
	}
	at := st.play.At()
	press(st, "0")
	if text = look(st, screen); st.play.At() != at || !strings.Contains(text, "0 copier, choose short copy, 0 to 2:") {
		t.Errorf("nobody asks for the value:\n%s", text)
	}
	if press(st, "7"); st.play.At() != at || !strings.Contains(look(st, screen), "7 is not one of 0 to 2") {
		t.Errorf("there is no value 7:\n%s", look(st, screen))
	}
	st.key(tcell.NewEventKey(tcell.KeyEscape, 0, tcell.ModNone))
	if st.asking || st.play.At() != at {
		t.Error("Esc does not leave the question")
	}
	press(st, "01")
	if st.play.At() != at+1 || !strings.HasSuffix(st.play.Schedule(), "=1") {
		t.Fatalf("at %d, want %d, schedule %q", st.play.At(), at+1, st.play.Schedule())
	}
	if text = look(st, screen); !strings.Contains(text, "choose short copy = 1 of 0 to 2") || !strings.Contains(text, "n 1") {
		t.Errorf("\n%s", text)
	}
	press(st, "u")
	if st.play.At() != at || st.play.Schedule() != "" {
		t.Errorf("undo: at %d, schedule %q", st.play.At(), st.play.Schedule())
	}
	// Another one between, and the whole at last.
	press(st, "102")
	schedule := st.play.Schedule()
	if !strings.HasPrefix(schedule, fmt.Sprintf("%d:1,%d", at, at+1)) || !strings.HasSuffix(schedule, "=2") {
		t.Errorf("schedule %q", schedule)
	}
	press(st, "f")
	if text = look(st, screen); !strings.Contains(text, "GOAL REACHED: copy all") || !strings.Contains(text, "VIOLATED (oracle): all was copied") || !strings.Contains(text, schedule) {
		t.Errorf("\n%s", text)
	}
	want := st.play.Trace()
	again := chooser(t, schedule).play.Trace()
	if again.Kind != want.Kind || again.Schedule != schedule || len(again.Steps) != len(want.Steps) || again.Steps[at+1].Val != 2 {
		t.Errorf("the schedule %q replays as %+v, want %+v", schedule, again, want)
	}
	// By itself a choice takes what it took last, and at first 0.
	press(st, "bf")
	if st.play.Schedule() != schedule {
		t.Errorf("schedule %q, want %q again", st.play.Schedule(), schedule)
	}
	st = chooser(t, "")
	press(st, "00")
	st.key(tcell.NewEventKey(tcell.KeyEnter, 0, tcell.ModNone))
	if st.asking || st.play.At() != at+1 || st.play.Schedule() != "" {
		t.Errorf("Enter: at %d, schedule %q", st.play.At(), st.play.Schedule())
	}
}

// The scenario with a choice of its own: each copy comes short or whole.
func TestStepShortCopy(t *testing.T) {
	s, err := scenario.Lookup("short-copy")
	if err != nil {
		t.Fatal(err)
	}
	st, err := NewStepper(s, "locked", "", false)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if press(st, "r"); st.asking {
			break
		}
	}
	if !st.asking {
		t.Fatal("no copy asks how much it gets")
	}
	at := st.play.At()
	press(st, "1f")
	if got, want := st.play.Schedule(), fmt.Sprintf("%d=1", at); got != want || !st.play.Over() || st.play.Trace().Kind != explore.OK {
		t.Errorf("schedule %q, want %q: %s", got, want, st.play.Verdict())
	}
}

// Who waits is told for what and for whom, and cannot be chosen.
func TestStepWaits(t *testing.T) {
	s, err := scenario.Lookup("truncate-race")
	if err != nil {
		t.Fatal(err)
	}
	st, err := NewStepper(s, "locked", "", false)
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
	if text := look(st, simulated(t, 80, 24)); !strings.Contains(text, "WAITS for i_rwsem: task 0") {
		t.Errorf("\n%s", text)
	}
}

// Every size of terminal and every scenario has a picture.
func TestStepDraws(t *testing.T) {
	need.Long(t)
	for _, s := range scenario.All() {
		st, err := NewStepper(s, "unlocked", "", false)
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
	st, err := NewStepper(s, "unlocked", "", false)
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
