// Package screen is the scheduler's chair on a terminal: in a scenario, or a level of lab 0, the
// user chooses who goes on, step by step.
package screen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"

	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// Stepper is a Play on a screen.
type Stepper struct {
	title   string                       // of the program, and what it runs under
	goal    string                       // the task for the player
	again   func(schedule string) string // the command that replays
	play    *timeline.Play
	about   []string // stands before the help
	never   bool     // x says that no schedule reaches the goal
	said    bool     // that none does
	chosen  int      // the task that Enter and r are for
	asking  bool     // for the value of the chosen task's next step
	typed   string   // of it so far
	help    bool
	message string // of the last key
}

// NewStepper is a scenario under policy pol, which must exist, after the schedule. With own it is
// judged by what the policy promises.
func NewStepper(s *scenario.Scenario, pol, schedule string, own bool) (*Stepper, error) {
	p, err := timeline.NewPlay(schedule, func(schedule string) (*scenario.Trace, error) {
		return scenario.Replay(s, policy.MustParse(pol), schedule, own)
	})
	if err != nil {
		return nil, err
	}
	again := func(schedule string) string { return scenario.ReplayCommand(s.Name, pol, schedule, own) }
	return &Stepper{title: s.Name + ", policy " + pol, goal: s.Aim(), again: again, play: p}, nil
}

// NewLevel is a level of lab 0 on a screen.
func NewLevel(l *levels.Level) (*Stepper, error) {
	p, err := timeline.NewPlay("", func(schedule string) (*scenario.Trace, error) { return l.Replay(schedule), nil })
	if err != nil {
		return nil, err
	}
	return &Stepper{title: l.Name, goal: l.Goal(), again: l.Command, play: p, never: true, help: true,
		about: append(About(l, prose.Width-4), "x           say never: no schedule breaks the rule")}, nil
}

// About is the story of a level and its program, in lines of w characters.
func About(l *levels.Level, w int) []string {
	text := append([]string{l.Title, ""}, prose.Words(l.Story, w)...)
	return append(append(text, ""), strings.Split(l.Code(), "\n")...)
}

// Run shows the stepper on the terminal until the user leaves.
func (st *Stepper) Run() error {
	screen, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("step: %w", err)
	}
	if err := screen.Init(); err != nil {
		return fmt.Errorf("step: %w", err)
	}
	st.loop(screen)
	screen.Fini()
	return nil
}

// Answered is the user's result when it ends: never, or the schedule of a violation; else
// nothing.
func (st *Stepper) Answered() string {
	switch {
	case st.said:
		return levels.Never
	case st.play.Over() && st.play.Trace().Kind != explore.OK:
		return st.play.Schedule()
	}
	return ""
}

// loop draws and obeys until the user leaves.
func (st *Stepper) loop(screen tcell.Screen) {
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

// key acts on one key. It returns false when the key means leave.
func (st *Stepper) key(ev *tcell.EventKey) bool {
	st.message = ""
	if st.help {
		st.help = false
		return ev.Key() != tcell.KeyCtrlC
	}
	if st.asking && ev.Key() != tcell.KeyCtrlC {
		st.answer(ev)
		return true
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
			if _, n, _ := st.play.Choice(st.chosen); n > 0 {
				st.one(st.chosen)
			} else if err := st.play.RunOn(st.chosen); err != nil {
				st.message = st.play.Why(st.chosen)
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
		case r == 'x' && st.never:
			st.said = true
			return false
		case r == 'q':
			return false
		}
	}
	return true
}

// one does a step of task and makes it the chosen one.
func (st *Stepper) one(task int) {
	if task < len(st.play.Trace().Tasks) {
		st.chosen = task
	}
	if _, n, _ := st.play.Choice(task); n > 0 && st.play.Can(task) {
		st.asking, st.typed = true, ""
		return
	}
	if err := st.play.Choose(task); err != nil {
		st.message = st.play.Why(task)
	}
}

// answer obeys a key while the chosen task's next step wants a value: digits, and Enter where one
// digit may not be all.
func (st *Stepper) answer(ev *tcell.EventKey) {
	_, n, val := st.play.Choice(st.chosen)
	switch ev.Key() {
	case tcell.KeyEnter:
		if st.typed == "" {
			st.typed = fmt.Sprint(val)
		}
		st.take(n)
	case tcell.KeyEscape, tcell.KeyUp:
		st.asking = false
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		st.typed = st.typed[:max(len(st.typed)-1, 0)]
	case tcell.KeyRune:
		switch r := ev.Rune(); {
		case r >= '0' && r <= '9' && len(st.typed) < 3:
			if st.typed += string(r); n <= 10 {
				st.take(n)
			}
		case r == 'u' || r == 'q':
			st.asking = false
		case r == '?' || r == 'h':
			st.help = true
		}
	}
}

// take does the step that was asked about, with the typed choice.
func (st *Stepper) take(n int) {
	val, err := strconv.Atoi(st.typed)
	if err != nil || val >= n {
		st.message = fmt.Sprintf("%s is not one of 0 to %d", st.typed, n-1)
		st.typed = ""
		return
	}
	st.asking = false
	if err := st.play.Take(st.chosen, val); err != nil {
		st.message = st.play.Why(st.chosen)
	}
}

// question is the text that answer reads a reply to.
func (st *Stepper) question() string {
	name, n, val := st.play.Choice(st.chosen)
	how := "which? Press the digit"
	if n > 10 {
		how = "which? Type it and press Enter"
	}
	return fmt.Sprintf("%d %s, choose %s, 0 to %d: %s (Enter alone takes %d, Esc none) %s", st.chosen, st.play.Trace().Tasks[st.chosen], name, n-1, how, val, st.typed)
}

func (st *Stepper) undo() {
	if !st.play.Undo() {
		st.message = "this is the beginning"
	}
}

// move goes to the next column.
func (st *Stepper) move(by int) {
	l := timeline.Shown(st.play.Trace())
	i := max(slices.Index(l, st.chosen), 0)
	st.chosen = l[(i+by+len(l))%len(l)]
}

// Parting is the text left on the terminal after step ends.
func (st *Stepper) Parting() string {
	end := ""
	if st.play.Over() {
		end = prose.Wrap(st.play.Verdict(), prose.Width) + "\n"
	}
	return end + st.command(prose.Width)
}

func (st *Stepper) command(w int) string {
	return prose.Command("replay: ", st.again(st.play.Schedule()), w)
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
	"clean, n new, D dirty, W under writeback, B both. The state is that after the",
	"last step; what it changed is bold.",
}

const (
	minColumn  = 19 // cells
	wideColumn = 38 // a column this wide rarely needs a second line
	laneCells  = 40 // least width of a step in the history, where there is room
	numCells   = 6  // width of a step's number
)

// canvas puts text on a screen and cuts it at the edges.
type canvas struct {
	tcell.Screen
	w, h int
}

// letter is what the locale has of a letter and of its stand-in in ASCII.
func letter(r, ascii rune) rune {
	if prose.UTF8() {
		return r
	}
	return ascii
}

// put writes text into the cells [x, x+w) of row y; the rest of them stay blank.
func (c canvas) put(x, y, w int, style tcell.Style, text string) {
	w = min(w, c.w-x)
	if y < 0 || y >= c.h || w <= 0 {
		return
	}
	r := []rune(text)
	if len(r) > w {
		r = append(r[:w-1], letter('…', '.'))
	}
	for i := range w {
		ch := ' '
		if i < len(r) {
			ch = r[i]
		}
		c.SetContent(x+i, y, ch, nil, style)
	}
}

func (st *Stepper) draw(screen tcell.Screen) {
	screen.Clear()
	w, h := screen.Size()
	c := canvas{screen, w, h}
	plain := tcell.StyleDefault
	bold := plain.Bold(true)
	if w < 40 || h < 16 {
		c.put(0, 0, w, plain, "40x16 at least, please")
		return
	}
	m := st.play.Now()
	c.put(0, 0, w, plain.Reverse(true), "")
	room := w
	schedule := " schedule '" + st.play.Schedule() + "' "
	if n := len(schedule); n < w/2 {
		c.put(w-n, 0, n, plain.Reverse(true), schedule)
		room -= n
	}
	c.put(0, 0, room, plain.Reverse(true), fmt.Sprintf(" step %d of %s", st.play.At(), st.title))
	y := 1
	for i, line := range prose.Words("Goal: "+st.goal, w) {
		if i < 2 {
			c.put(0, y, w, bold, line)
			y++
		}
	}
	st.state(c, y, &m)
	y++
	c.put(0, h-1, w, plain.Reverse(true), " 0-9 step  r run on  u undo  n next  f finish  b begin  ? help  q quit")
	if st.help {
		for i, line := range slices.Concat(st.about, stepHelp) {
			c.put(2, y+1+i, w-2, plain, line)
		}
		return
	}
	foot := st.foot(w, h/3)
	for i, l := range foot {
		c.put(0, h-1-len(foot)+i, w, bold, l)
	}
	tasks, colw := st.columns(w)
	rows := 7
	if colw < wideColumn {
		rows = 9
	}
	columns, need := make([][]styled, len(tasks)), 0
	for i, t := range tasks {
		columns[i] = st.column(colw-1, t, &m)
		need = max(need, len(columns[i]))
	}
	if st.play.Over() { // otherwise the columns keep their height from step to step
		rows = need
	}
	rows = min(rows, h-y-len(foot)-4)
	for i, lines := range columns {
		for k, l := range lines[:min(len(lines), rows)] {
			c.put(i*colw, y+k, colw-1, l.style, l.text)
		}
	}
	for x := range w {
		c.SetContent(x, y+rows, letter('─', '-'), nil, plain)
	}
	st.history(c, y+rows+1, h-2-len(foot), colw, tasks)
}

// state shows the file in row y; what the last step changed is bold.
func (st *Stepper) state(c canvas, y int, m *timeline.Moment) {
	var before []string
	if at := st.play.At(); at > 0 {
		moment := timeline.At(st.play.Trace(), at-1)
		before = moment.State
	}
	x := 0
	for i, name := range st.play.Trace().Columns {
		if i >= len(m.State) {
			continue
		}
		style := tcell.StyleDefault
		if i < len(before) && before[i] != m.State[i] {
			style = style.Bold(true)
		}
		text := name + " " + m.State[i]
		c.put(x, y, c.w-x, style, text)
		x += len([]rune(text)) + 3
	}
}

// foot is the text above the keys, at most n lines of w characters: the verdict and how to see it
// again, a question, or the answer to the last key.
func (st *Stepper) foot(w, n int) []string {
	switch {
	case st.asking:
		return append(prose.Words(st.question(), w), st.note()...)
	case !st.play.Over():
		if l := st.note(); len(l) > 0 {
			return prose.Words(l[0], w)
		}
		return []string{""}
	}
	var head []string
	if st.play.Trace().Kind != explore.OK {
		head = prose.Words("GOAL REACHED: "+st.goal, w)
	}
	end := strings.Split(st.command(w), "\n")
	end = append(end, st.note()...)
	l := strings.Split(prose.Wrap(st.play.Verdict(), w), "\n")
	if room := max(n-len(head)-len(end), 1); len(l) > room {
		l = l[:room]
		if r := []rune(l[room-1]); len(r) > 0 {
			l[room-1] = string(r[:min(len(r), w-2)]) + " " + string(letter('…', '.'))
		}
	}
	return append(append(head, l...), end...)
}

// note is the text that answers the last key.
func (st *Stepper) note() []string {
	if st.message == "" {
		return nil
	}
	return []string{st.message}
}

// columns are the tasks shown and the width of each; the chosen task is among them.
func (st *Stepper) columns(w int) ([]int, int) {
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

// styled is a line on the screen.
type styled struct {
	style tcell.Style
	text  string
}

// column is a task in lines of w characters: its operation, what it waits for or does next, what it
// holds.
func (st *Stepper) column(w, task int, m *timeline.Moment) []styled {
	plain := tcell.StyleDefault
	a := m.Tasks[task]
	can := st.play.Can(task)
	name, mark := plain.Bold(can).Dim(!can), " "
	if task == st.chosen {
		name, mark = name.Underline(true), "*"
	}
	lines := []styled{{name, mark + st.play.Name(task)}}
	say := func(style tcell.Style, text string) {
		for _, l := range prose.Hang("", "  ", text, w) {
			lines = append(lines, styled{style, l})
		}
	}
	if a.Op != "" {
		say(plain, a.Op)
	}
	style := plain
	if a.Phase == timeline.Waiting {
		style = plain.Bold(true)
	}
	say(style, st.play.Status(m, task))
	if next := a.Coming(); next != "" {
		say(plain, "next: "+next)
	}
	if held := a.Holding(); held != "" {
		say(plain, held)
	}
	return lines
}

// history shows the last steps in the rows [top, bottom], each where its task's column begins, or
// further left where it would not fit.
func (st *Stepper) history(c canvas, top, bottom, colw int, tasks []int) {
	tr := st.play.Trace()
	culprit := -1
	if st.play.Over() {
		culprit = timeline.Culprit(tr)
	}
	if n := len(tasks); n > 1 {
		colw = min(colw, (c.w-laneCells)/(n-1))
	}
	y := bottom
	for i := st.play.At() - 1; i >= 0 && y >= top; i-- {
		s := &tr.Steps[i]
		if !timeline.Tells(s) {
			continue
		}
		mark, style := "", tcell.StyleDefault
		if s.Preempts {
			mark = ">"
		}
		if i == culprit {
			mark, style = "!", style.Bold(true).Reverse(true)
		}
		text := timeline.Did(s)
		k := slices.Index(tasks, s.Task)
		if k < 0 {
			k, text = 0, fmt.Sprintf("(task %d) %s", s.Task, text)
		}
		c.put(0, y, numCells-1, style, fmt.Sprintf("%*s", numCells-1, mark+fmt.Sprint(i)))
		x := max(min(k*colw, c.w-utf8.RuneCountInString(text)), numCells)
		c.put(x, y, c.w-x, style, text)
		y--
	}
}
