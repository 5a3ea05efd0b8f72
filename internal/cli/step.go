package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

func (a *app) step() *cobra.Command {
	var pol string
	var own bool
	cmd := &cobra.Command{
		Use:   "step SCENARIO [SCHEDULE]",
		Short: "be the scheduler: choose who goes on, step by step",
		Long: `Step runs a scenario on the real write path and asks before each step who goes on. There is a column for each task: what
it is about to do, what it holds, whom it waits for; above them the file as it is now. The number of a task lets it do one
step, r lets it run on until it waits or returns, u takes a step back. With a schedule, n follows it. At the end
step says whether the contract was kept, and after q it prints the schedule for replay.`,
		Example: `  btrlab step truncate-race --policy unlocked
  btrlab step truncate-race 10:1 --policy unlocked-drain`,
		Args: cobra.RangeArgs(1, 2),
	}
	f := cmd.Flags()
	f.StringVar(&pol, "policy", "unlocked", "locking policy: "+strings.Join(policy.Names(), ", ")+", with +TOGGLE and !TOGGLE")
	f.BoolVar(&own, "own", false, "judge by what the policy promises, not by the scenario's rule")
	completeFixed(cmd, "policy", policy.Names())
	cmd.ValidArgsFunction = completeScenarios
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := parsePolicies(cmd, []string{pol}); err != nil {
			return err
		}
		s, err := scenario.Lookup(args[0])
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		schedule := ""
		if len(args) > 1 {
			schedule = args[1]
		}
		st, err := newStepper(s, pol, schedule, own)
		if err != nil {
			return fmt.Errorf("step %s: %w", s.Name, err)
		}
		if !isTerminal(a.out) {
			return errors.New("step: standard output is no terminal; replay prints a schedule without one")
		}
		screen, err := tcell.NewScreen()
		if err != nil {
			return fmt.Errorf("step: %w", err)
		}
		if err := screen.Init(); err != nil {
			return fmt.Errorf("step: %w", err)
		}
		st.loop(screen)
		screen.Fini()
		_, err = fmt.Fprintln(a.out, st.parting())
		return err
	}
	return cmd
}

// stepper is a Play on a screen.
type stepper struct {
	s       *scenario.Scenario
	pol     string
	own     bool
	play    *timeline.Play
	chosen  int // the task that Enter and r are for
	help    bool
	message string // of the last key
}

func newStepper(s *scenario.Scenario, pol, schedule string, own bool) (*stepper, error) {
	p, err := timeline.NewPlay(schedule, func(schedule string) (*scenario.Trace, error) {
		return scenario.Replay(s, policy.MustParse(pol), schedule, own)
	})
	if err != nil {
		return nil, err
	}
	return &stepper{s: s, pol: pol, own: own, play: p}, nil
}

// loop draws and obeys until the user leaves.
func (st *stepper) loop(screen tcell.Screen) {
	for {
		st.draw(screen)
		screen.Show()
		switch ev := screen.PollEvent().(type) {
		case nil:
			return
		case *tcell.EventResize:
			screen.Sync()
		case *tcell.EventKey:
			if !st.key(ev) {
				return
			}
		}
	}
}

// key obeys one key; false is the wish to leave.
func (st *stepper) key(ev *tcell.EventKey) bool {
	st.message = ""
	if st.help {
		st.help = false
		return ev.Key() != tcell.KeyCtrlC
	}
	switch ev.Key() {
	case tcell.KeyEscape, tcell.KeyCtrlC:
		return false
	case tcell.KeyRight, tcell.KeyTab:
		st.move(1)
	case tcell.KeyLeft, tcell.KeyBacktab:
		st.move(-1)
	case tcell.KeyEnter, tcell.KeyDown:
		st.one(st.chosen)
	case tcell.KeyUp, tcell.KeyBackspace, tcell.KeyBackspace2:
		st.undo()
	case tcell.KeyRune:
		switch r := ev.Rune(); {
		case r >= '0' && r <= '9':
			st.one(int(r - '0'))
		case r == 'r':
			if err := st.play.RunOn(st.chosen); err != nil {
				st.message = st.why(st.chosen)
			}
		case r == 'u':
			st.undo()
		case r == 'n' || r == ' ':
			if !st.play.Next() {
				st.message = "nothing is left to do: u takes a step back"
			}
		case r == 'f':
			st.play.Finish()
		case r == 'b':
			st.play.Restart()
		case r == '?' || r == 'h':
			st.help = true
		case r == 'q':
			return false
		}
	}
	return true
}

// one does a step of task and makes it the chosen one.
func (st *stepper) one(task int) {
	if task < len(st.play.Trace().Tasks) {
		st.chosen = task
	}
	if err := st.play.Choose(task); err != nil {
		st.message = st.why(task)
	}
}

func (st *stepper) undo() {
	if !st.play.Undo() {
		st.message = "this is the beginning"
	}
}

// why says why task does no step.
func (st *stepper) why(task int) string {
	tr := st.play.Trace()
	if task >= len(tr.Tasks) {
		return fmt.Sprintf("there is no task %d", task)
	}
	if st.play.Over() {
		return "nothing is left to do: u takes a step back"
	}
	m := st.play.Now()
	name := fmt.Sprintf("%d %s", task, tr.Tasks[task])
	switch a := m.Tasks[task]; a.Phase {
	case timeline.Ended, timeline.Idle:
		return name + " has nothing left to do"
	case timeline.Waiting:
		if h := m.Holder(task); h >= 0 {
			return fmt.Sprintf("%s waits for %s: %d %s must go on first", name, a.For, h, tr.Tasks[h])
		}
		return name + " waits for " + a.For
	}
	return name + " cannot run in this step"
}

// move goes to the next column.
func (st *stepper) move(by int) {
	l := timeline.Shown(st.play.Trace())
	i := max(slices.Index(l, st.chosen), 0)
	st.chosen = l[(i+by+len(l))%len(l)]
}

// parting is what stays on the terminal.
func (st *stepper) parting() string {
	end := ""
	if st.play.Over() {
		end = st.verdict()[0] + "\n"
	}
	return end + "replay: " + scenario.ReplayCommand(st.s.Name, st.pol, st.play.Schedule(), st.own)
}

// verdict is what came of a schedule that is over.
func (st *stepper) verdict() []string {
	tr := st.play.Trace()
	if tr.Kind == explore.OK {
		return []string{"KEPT: nothing was violated in this schedule (u takes a step back)"}
	}
	return strings.Split(fmt.Sprintf("VIOLATED (%s): %s", tr.Kind, strings.TrimSpace(tr.Message)), "\n")
}

var stepHelp = []string{
	"0 to 9      let that task do one step",
	"Left Right  choose a column",
	"Enter Down  one step of the chosen task",
	"r           run the chosen task until it waits or an operation returns",
	"u Up        take the last step back",
	"n Space     go on by itself: what was taken back, else the default order",
	"f           finish by itself",
	"b           back to the beginning",
	"q Esc       leave; the schedule is printed",
	"",
	"The default order lets the task go on that ran last. A preemption is a step of",
	"another task while it could have gone on; '>' marks it. '!' marks the access",
	"that the verdict is about. pages has a letter a page: - not in memory, c",
	"clean, n new, D dirty, W under writeback, B both. The state is that after the last step.",
}

const (
	minColumn  = 19 // cells
	columnRows = 7
)

// canvas puts text on a screen and cuts it at the edges.
type canvas struct {
	tcell.Screen
	w, h int
}

// put writes text into the cells [x, x+w) of row y; the rest of them stay blank.
func (c canvas) put(x, y, w int, style tcell.Style, text string) {
	w = min(w, c.w-x)
	if y < 0 || y >= c.h || w <= 0 {
		return
	}
	r := []rune(text)
	if len(r) > w {
		r = append(r[:w-1], '…')
	}
	for i := range w {
		ch := ' '
		if i < len(r) {
			ch = r[i]
		}
		c.SetContent(x+i, y, ch, nil, style)
	}
}

func (st *stepper) draw(screen tcell.Screen) {
	screen.Clear()
	w, h := screen.Size()
	c := canvas{screen, w, h}
	plain := tcell.StyleDefault
	bold := plain.Bold(true)
	if w < 40 || h < 16 {
		c.put(0, 0, w, plain, "40x16 at least, please")
		return
	}
	tr, m := st.play.Trace(), st.play.Now()
	c.put(0, 0, w, plain.Reverse(true), "")
	room := w
	schedule := " schedule '" + st.play.Schedule() + "' "
	if n := len(schedule); n < w/2 {
		c.put(w-n, 0, n, plain.Reverse(true), schedule)
		room -= n
	}
	c.put(0, 0, room, plain.Reverse(true), fmt.Sprintf(" step %d of %s, policy %s", st.play.At(), st.s.Name, st.pol))
	goal := st.s.Goal
	if goal == "" {
		goal = "find an order that breaks the contract: " + st.s.About
	}
	y := 1
	for i, line := range wrap("Goal: "+goal, w) {
		if i < 2 {
			c.put(0, y, w, bold, line)
			y++
		}
	}
	var state []string
	for i, name := range tr.Columns {
		if v := "?"; i < len(m.State) {
			v = m.State[i]
			state = append(state, name+" "+v)
		}
	}
	c.put(0, y, w, plain, strings.Join(state, "   "))
	y++
	c.put(0, h-1, w, plain.Reverse(true), " 0-9 step  r run on  u undo  n next  f finish  b begin  ? help  q quit")
	if st.help {
		for i, line := range stepHelp {
			c.put(2, y+1+i, w-2, plain, line)
		}
		return
	}
	bottom := h - 2
	switch {
	case st.play.Over():
		lines := st.verdictLines(w)
		lines = lines[:min(len(lines), h/3)]
		bottom = h - 1 - len(lines)
		for i, l := range lines {
			c.put(0, bottom+i, w, bold, l)
		}
		bottom--
	case st.message != "":
		c.put(0, h-2, w, bold, st.message)
		bottom--
	default:
		bottom--
	}
	tasks, colw := st.columns(w)
	for i, t := range tasks {
		st.column(c, i*colw, y, colw-1, t, &m)
	}
	for x := range w {
		c.SetContent(x, y+columnRows, '─', nil, plain)
	}
	st.history(c, y+columnRows+1, bottom, colw, tasks)
}

func (st *stepper) verdictLines(w int) []string {
	var l []string
	for _, line := range st.verdict() {
		l = append(l, wrap(line, w)...)
	}
	return l
}

// columns are the tasks shown and the width of each; the chosen task is among them.
func (st *stepper) columns(w int) ([]int, int) {
	tasks := timeline.Shown(st.play.Trace())
	if !slices.Contains(tasks, st.chosen) {
		tasks = append(tasks, st.chosen)
	}
	n := max(min(len(tasks), w/minColumn), 1)
	if i := slices.Index(tasks, st.chosen); i >= n {
		tasks = tasks[i-n+1:]
	}
	return tasks[:n], w / n
}

// column shows a task: its operation, what it waits for or does next, what it holds.
func (st *stepper) column(c canvas, x, y, w, task int, m *timeline.Moment) {
	tr := st.play.Trace()
	plain := tcell.StyleDefault
	style, mark := plain.Bold(true), " "
	if task == st.chosen {
		style, mark = style.Underline(true), "*"
	}
	a := m.Tasks[task]
	c.put(x, y, w, style, fmt.Sprintf("%s%d %s", mark, task, tr.Tasks[task]))
	c.put(x, y+1, w, plain, a.Op)
	status := ""
	switch {
	case a.Phase == timeline.Waiting:
		status = "WAITS for " + a.For
		if h := m.Holder(task); h >= 0 {
			status += fmt.Sprintf(" (task %d)", h)
		}
		c.put(x, y+2, w, plain.Bold(true), status)
		status = ""
	case a.Phase != timeline.Ready:
		status = a.Phase.String()
	case st.play.Can(task):
		status = "can run"
	default:
		status = "not now"
	}
	if status != "" {
		c.put(x, y+2, w, plain, status)
	}
	if a.Next != "" {
		where := ""
		if a.Where != "" {
			where = "in " + a.Where
		}
		c.put(x, y+3, w, plain, "next: "+a.Next)
		c.put(x, y+4, w, plain, where)
	}
	held := "holds nothing"
	if len(a.Held) > 0 {
		held = "holds " + strings.Join(a.Held, ", ")
	}
	if a.Phase == timeline.Ready || a.Phase == timeline.Waiting {
		for i, line := range wrap(held, w) {
			if i < 2 {
				c.put(x, y+5+i, w, plain, line)
			}
		}
	}
}

// history shows the last steps in the rows [top, bottom], each in its task's column.
func (st *stepper) history(c canvas, top, bottom, colw int, tasks []int) {
	tr := st.play.Trace()
	type line struct {
		task  int
		text  string
		style tcell.Style
	}
	culprit := -1
	if st.play.Over() {
		culprit = timeline.Culprit(tr)
	}
	var l []line
	for i := max(st.play.At()-(bottom-top)-1, 0); i < st.play.At(); i++ {
		s := &tr.Steps[i]
		mark, style := " ", tcell.StyleDefault
		if s.Preempts {
			mark = ">"
		}
		if i == culprit {
			mark, style = "!", style.Bold(true).Reverse(true)
		}
		text := fmt.Sprintf("%s%d %s", mark, i, s.What)
		for _, n := range s.Notes {
			if strings.HasSuffix(n, "returns") {
				text += " [" + n + "]"
			}
		}
		if s.Where != "" {
			text += " in " + s.Where
		}
		l = append(l, line{s.Task, text, style})
	}
	if len(l) > bottom-top+1 {
		l = l[len(l)-(bottom-top+1):]
	}
	for i, s := range l {
		if k := slices.Index(tasks, s.task); k >= 0 {
			c.put(k*colw, top+i, colw-1, s.style, s.text)
		} else {
			c.put(0, top+i, c.w, s.style, fmt.Sprintf("(task %d)%s", s.task, s.text))
		}
	}
}

// wrap cuts text into lines of at most w characters, at blanks where it can.
func wrap(text string, w int) []string {
	var l []string
	line := ""
	for _, word := range strings.Fields(text) {
		for len([]rune(word)) > w {
			r := []rune(word)
			if line != "" {
				l, line = append(l, line), ""
			}
			l, word = append(l, string(r[:w])), string(r[w:])
		}
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= w:
			line += " " + word
		default:
			l, line = append(l, line), word
		}
	}
	if line != "" {
		l = append(l, line)
	}
	return l
}
