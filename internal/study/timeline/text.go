package timeline

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Layout is how WriteText prints. The zero value is for a terminal of 80 columns.
type Layout struct {
	Width int  // of a line in characters; prose.Width is the smallest
	All   bool // a line for every step
}

// WriteText prints tr as a table, time going down: the state of the file, a mark for each task, and
// what is done, the tasks beside each other as far as the width lets them.
//
// Model: steps of one task in a row share a line while they change nothing in the state columns and
// fit in it; the state is that after the last of them. A step that preempts, or that the verdict is
// about, begins a line. Steps that come again and again are printed once. With Layout.All none of
// this is done.
func WriteText(w io.Writer, tr *scenario.Trace, lay Layout) error {
	t := newTable(tr, lay)
	t.fill()
	var b strings.Builder
	t.print(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// line is one line of the table, or several when its text is long.
type line struct {
	from, to int // steps, both inside
	task     int
	mark     string
	parts    []part
	text     string // in place of parts
	under    bool   // the line above names the function of its first part
	closed   bool   // nothing but an unlock may follow
	ended    bool   // nothing at all
}

// part is one step in a line.
type part struct {
	where, verb, what string
	note              string
	waits             string // after it
}

// table is a trace on its way to the terminal.
type table struct {
	tr      *scenario.Trace
	lay     Layout
	culprit int
	tasks   []int
	cols    []int // state columns that change
	fixed   []string
	state   int            // width of the state columns
	number  int            // and of the step numbers
	indent  int            // from one task's words to the next one's
	text    int            // column in which the words of the first task begin
	below   bool           // the words stand in lines below the state: beside it they have no room
	pages   int            // letters of the pages column that are shown
	stands  map[int]string // after this step its task waits: for what
	lines   []line
}

const (
	// characters in which words have room: with as many for each task they stand beside each other
	laneWidth   = 46
	laneMin     = 36 // and in which they are still readable
	wordsMin    = 22 // with fewer for the last task, words stand below the state
	indentMin   = 2
	stateGap    = 1
	repeatMax   = 64 // steps of the longest repetition that is looked for
	repeatSaves = 6  // and steps it must save
)

func newTable(tr *scenario.Trace, lay Layout) *table {
	lay.Width = max(lay.Width, prose.Width)
	t := &table{tr: tr, lay: lay, culprit: Culprit(tr), tasks: Shown(tr), pages: inMemory(tr)}
	t.stands = stands(tr)
	for c, name := range tr.Columns {
		if v, ok := t.constant(c); ok {
			t.fixed = append(t.fixed, name+" "+v)
			continue
		}
		t.cols = append(t.cols, c)
		t.state += stateGap + t.width(c)
	}
	return t
}

// fill makes the lines, with the narrowest column of step numbers that does.
func (t *table) fill() {
	widest := 2*len(fmt.Sprint(len(t.tr.Steps))) + 2
	t.place(widest)
	t.steps()
	if need := t.need(); need < widest {
		t.place(need)
		t.steps()
		if t.need() > need {
			t.place(widest)
			t.steps()
		}
	}
}

// need is the width that the step numbers have.
func (t *table) need() int {
	n := len("step")
	for i := range t.lines {
		n = max(n, len(t.lines[i].number()))
	}
	return n
}

// stands finds the steps after which their tasks must wait. A daemon that waits for work and holds
// nothing is left out.
func stands(tr *scenario.Trace) map[int]string {
	m := map[int]string{}
	for task := range tr.Tasks {
		for _, s := range waitSpans(tr, task) {
			last := s.From - 1
			if last < 0 || tr.Steps[last].Task != task {
				continue // it stood there before: another task has closed the lock
			}
			if now := At(tr, s.From); task < tr.Own || len(now.Tasks[task].Held) > 0 {
				m[last] = s.What
			}
		}
	}
	return m
}

// place puts the columns where they are when the step numbers have so many characters.
func (t *table) place(number int) {
	t.number, t.below = number, false
	t.text = number + t.state + stateGap + len(t.tasks) + 1
	t.spread()
	if n := len(t.tasks); n > 0 && t.room(t.tasks[n-1]) < wordsMin {
		t.below, t.text = true, number+stateGap
		t.spread()
	}
}

// spread sets the indent from one task's words to the next one's.
func (t *table) spread() {
	n := len(t.tasks)
	if n < 2 {
		return
	}
	room, names := t.lay.Width-t.text, 0
	for _, task := range t.tasks[:n-1] {
		names = max(names, utf8.RuneCountInString(t.name(task))+1)
	}
	switch {
	case room/n >= laneWidth:
		t.indent = room / n
	case room-names*(n-1) >= laneMin:
		t.indent = max(names, (room-laneWidth)/(n-1))
	default:
		t.indent = max((room-laneMin)/(n-1), indentMin)
	}
}

func (t *table) name(task int) string { return fmt.Sprintf("%d %s", task, t.tr.Tasks[task]) }

func (t *table) cell(state []string, c int) string { return cell(t.tr, state, c, t.pages) }

// constant is the value of column c when it is the same in every step.
func (t *table) constant(c int) (string, bool) {
	v := ""
	for i := range t.tr.Steps {
		s := t.tr.Steps[i].State
		if c >= len(s) {
			continue
		}
		if v == "" {
			v = t.cell(s, c)
		} else if v != t.cell(s, c) {
			return "", false
		}
	}
	return v, v != ""
}

func (t *table) width(c int) int {
	n := utf8.RuneCountInString(t.tr.Columns[c])
	for i := range t.tr.Steps {
		n = max(n, utf8.RuneCountInString(t.cell(t.tr.Steps[i].State, c)))
	}
	return n
}

// lane is the place of task among the tasks shown, and the column in which its words begin.
func (t *table) lane(task int) int { return t.text + slices.Index(t.tasks, task)*t.indent }

// room is how many characters the words of task may have in a line.
func (t *table) room(task int) int { return t.lay.Width - t.lane(task) }

// shows says whether step i has words.
func (t *table) shows(i int) bool {
	s := &t.tr.Steps[i]
	return slices.Contains(t.tasks, s.Task) && (t.lay.All || s.Kind != "start" || s.Preempts || i == t.culprit)
}

// number is the steps of l, with the mark in front.
func (l *line) number() string {
	if l.to > l.from {
		return fmt.Sprintf("%s%d-%d", l.mark, l.from, l.to)
	}
	return fmt.Sprintf("%s%d", l.mark, l.from)
}

// steps makes the lines.
func (t *table) steps() {
	t.lines = t.lines[:0]
	var l []int
	for i := range t.tr.Steps {
		if t.shows(i) {
			l = append(l, i)
		}
	}
	for k := 0; k < len(l); k++ {
		if !t.lay.All {
			if n, times := t.repeats(l[k:]); times > 1 {
				if len(t.lines) > 0 {
					t.lines[len(t.lines)-1].ended = true
				}
				for _, i := range l[k : k+n] {
					t.step(i)
				}
				from, to := l[k+n], l[k+n*times-1]
				t.lines = append(t.lines, line{from: from, to: to, task: t.tr.Steps[l[k]].Task, ended: true,
					text: fmt.Sprintf("... steps %d to %d again, %s", l[k], l[k+n-1], prose.Count(times-1, "time"))})
				k += n*times - 1
				continue
			}
		}
		t.step(l[k])
	}
}

// repeats finds how often the steps at the beginning of l come one after the other: n of them, so
// many times. times is 1 where nothing comes again.
func (t *table) repeats(l []int) (n, times int) {
	for n := 1; n <= repeatMax && 2*n <= len(l); n++ {
		times := 1
		for ; (times+1)*n <= len(l); times++ {
			if !slices.EqualFunc(l[(times-1)*n:times*n], l[times*n:(times+1)*n], t.same) {
				break
			}
		}
		if times > 2 && (times-1)*n >= repeatSaves {
			return n, times
		}
	}
	return 0, 1
}

// same says that two steps look the same.
func (t *table) same(i, j int) bool {
	a, b := &t.tr.Steps[i], &t.tr.Steps[j]
	return i != t.culprit && j != t.culprit && a.Task == b.Task && a.What == b.What && a.Where == b.Where && a.Preempts == b.Preempts &&
		slices.Equal(a.Notes, b.Notes) && slices.Equal(a.State, b.State)
}

// step puts step i into the last line or a new one.
func (t *table) step(i int) {
	s := &t.tr.Steps[i]
	p, begins := t.part(i)
	changed := i > 0 && !slices.Equal(s.State, t.tr.Steps[i-1].State)
	mark := ""
	if s.Preempts {
		mark = ">"
	}
	if i == t.culprit {
		mark = "!" + mark
	}
	var last *line
	fresh := func() {
		l := line{from: i, to: i, task: s.Task, mark: mark}
		if last != nil && !t.lay.All && last.task == s.Task && len(last.parts) > 0 && mark == "" {
			l.under = p.where != "" && last.parts[len(last.parts)-1].where == p.where
		}
		t.lines = append(t.lines, l)
		last = &t.lines[len(t.lines)-1]
	}
	if n := len(t.lines); n > 0 {
		last = &t.lines[n-1]
	}
	unlock := p.verb == "unlock"
	if last == nil || t.lay.All || last.ended || last.task != s.Task || mark != "" || begins || p.verb == "change" || last.closed && !(unlock && last.has(p.where)) {
		fresh()
	}
	// a task that queues and gets the lock at once has only taken it
	if !t.lay.All && t.queues(i) && mark == "" {
		last.to = i
		return
	}
	last.parts = append(last.parts, p)
	if n := len(last.parts); n > 1 && utf8.RuneCountInString(last.words()) > t.room(s.Task) && !(unlock && p.note == "" && last.locks(p.what)) {
		last.parts = last.parts[:n-1]
		fresh()
		last.parts = append(last.parts, p)
	}
	last.to = i
	last.closed = last.closed || changed
	last.ended = p.note != "" || p.waits != "" || i == t.culprit || begins
}

// part is step i in words, and whether an operation begins with it.
func (t *table) part(i int) (p part, begins bool) {
	s := &t.tr.Steps[i]
	p.where = s.Where
	p.verb, p.what = s.What.Verb, s.What.Rest()
	op, begins := s.Begins()
	if begins && s.Kind == "call" {
		p.verb, p.what = fmt.Sprintf("%d:", op.Op), op.Text
	}
	for _, n := range s.Notes {
		if n != op {
			p.note += fmt.Sprintf(" [%v]", n)
		}
	}
	if what := t.stands[i]; what != "" && s.What.Verb == "queue" && s.What.Object == what {
		p.waits = " (waits)"
	} else if what != "" {
		p.waits = " (waits for " + what + ")"
	}
	return p, begins
}

// queues says whether step i only queues for what the next step locks.
func (t *table) queues(i int) bool {
	if i+1 >= len(t.tr.Steps) || i+1 == t.culprit {
		return false
	}
	s, next := &t.tr.Steps[i], &t.tr.Steps[i+1]
	return s.What.Verb == "queue" && next.Task == s.Task && next.What.Verb == "lock" && next.What.Object == s.What.Object
}

// has says whether the last step of l is in the function where.
func (l *line) has(where string) bool {
	return len(l.parts) > 0 && l.parts[len(l.parts)-1].where == where
}

// locks says whether what is locked in l.
func (l *line) locks(what string) bool {
	return slices.ContainsFunc(l.parts, func(p part) bool { return p.verb == "lock" && p.what == what })
}

// words is the text of l: the function once for all that happens in it, the verb once for all that
// is locked or unlocked one after the other, and no names where all that was just locked is
// unlocked again.
func (l *line) words() string {
	if l.text != "" {
		return l.text
	}
	var b strings.Builder
	if l.under {
		b.WriteString("  ")
	}
	where := ""
	if l.under && len(l.parts) > 0 {
		where = l.parts[0].where
	}
	locked := 0 // parts before this one that lock, without others between
	for i := 0; i < len(l.parts); {
		p := l.parts[i]
		switch {
		case i > 0 && p.where == where:
			b.WriteString(", ")
		case i > 0:
			b.WriteString("; ")
		}
		if p.where != where && p.where != "" {
			b.WriteString(p.where + ": ")
		}
		where = p.where
		n := 1
		for (p.verb == "lock" || p.verb == "unlock") && i+n < len(l.parts) && l.parts[i+n-1].note+l.parts[i+n-1].waits == "" && l.parts[i+n].verb == p.verb && l.parts[i+n].where == p.where {
			n++
		}
		b.WriteString(p.verb)
		switch {
		case p.verb == "unlock" && n == locked && sameNames(l.parts[i-n:i], l.parts[i:i+n]):
			b.WriteString([...]string{" it", " both", " all"}[min(n, 3)-1])
		default:
			for k := range n {
				if k > 0 {
					b.WriteByte(',')
				}
				if what := l.parts[i+k].what; what != "" {
					b.WriteString(" " + what)
				}
			}
		}
		b.WriteString(l.parts[i+n-1].note + l.parts[i+n-1].waits)
		locked = 0
		if p.verb == "lock" {
			locked = n
		}
		i += n
	}
	return b.String()
}

// sameNames says whether a and b are about the same things, in any order.
func sameNames(a, b []part) bool {
	for _, p := range a {
		if !slices.ContainsFunc(b, func(q part) bool { return q.what == p.what }) {
			return false
		}
	}
	return true
}

func (t *table) print(b *strings.Builder) {
	tr, w := t.tr, t.lay.Width
	say := func(format string, args ...any) { fmt.Fprintln(b, prose.Wrap(fmt.Sprintf(format, args...), w)) }
	schedule := tr.Schedule
	if schedule == "" {
		schedule = "''"
	}
	title := tr.Scenario
	if tr.Policy != "" {
		title += ", policy " + tr.Policy
	}
	say("%s, schedule %s (%s)", title, schedule, prose.Count(tr.Preemptions, "preemption"))
	say("%s", tr.About)
	if len(t.fixed) > 0 {
		say("all the time: %s", strings.Join(t.fixed, ", "))
	}
	b.WriteByte('\n')
	t.head(b)
	for k := range t.lines {
		l := &t.lines[k]
		t.row(b, l.number(), t.tr.Steps[l.to].State, t.marks(l.to+1), l.task, l.words())
	}
	t.forever(b)
	b.WriteByte('\n')
	t.legend(say)
	if tr.Kind == explore.OK {
		for l := range strings.SplitSeq(tr.Kept(), "\n") {
			fmt.Fprintln(b, strings.Join(prose.Hang("", "  ", l, w), "\n"))
		}
		return
	}
	for _, l := range strings.Split("! "+strings.TrimSpace(tr.Violation.Violated()), "\n") {
		indent := l[:len(l)-len(strings.TrimLeft(l, " "))]
		fmt.Fprintln(b, strings.Join(prose.Hang(indent, indent+"  ", l, w), "\n"))
	}
}

// head prints the names of the columns, the tasks' on lines of their own where they do not fit
// beside each other.
func (t *table) head(b *strings.Builder) {
	left := fmt.Sprintf("%*s", t.number, "step")
	for _, c := range t.cols {
		left += strings.Repeat(" ", stateGap) + fmt.Sprintf("%-*s", t.width(c), t.tr.Columns[c])
	}
	left += strings.Repeat(" ", stateGap)
	for _, task := range t.tasks {
		if len(t.tasks) == 1 {
			left += " "
		} else {
			left += fmt.Sprint(task % 10)
		}
	}
	left += " "
	var lines []string
	for _, task := range t.tasks {
		name := t.name(task)
		if n := len(lines); n > 0 && utf8.RuneCountInString(lines[n-1]) < t.lane(task) {
			lines[n-1] += strings.Repeat(" ", t.lane(task)-utf8.RuneCountInString(lines[n-1])) + name
			continue
		}
		lines = append(lines, strings.Repeat(" ", t.lane(task))+name)
	}
	for i, l := range lines {
		switch {
		case i < len(lines)-1:
		case t.below:
			l += "\n" + strings.TrimRight(left, " ")
		default:
			l = left + string([]rune(l)[utf8.RuneCountInString(left):])
		}
		fmt.Fprintln(b, l)
	}
	fmt.Fprintln(b, strings.Repeat("-", t.lay.Width))
}

// row prints one line of the table; text goes on in the next lines of its lane.
func (t *table) row(b *strings.Builder, step string, state []string, marks string, task int, text string) {
	var l strings.Builder
	fmt.Fprintf(&l, "%*s", t.number, step)
	for _, c := range t.cols {
		l.WriteString(strings.Repeat(" ", stateGap) + fmt.Sprintf("%-*s", t.width(c), t.cell(state, c)))
	}
	l.WriteString(strings.Repeat(" ", stateGap) + marks + " ")
	if t.below {
		fmt.Fprintln(b, strings.TrimRight(l.String(), " "))
		l.Reset()
	}
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	words := prose.Hang(indent, indent+"  ", text, t.room(task))
	for i, text := range words {
		at := t.lane(task)
		if i == 0 {
			at -= utf8.RuneCountInString(l.String())
		}
		fmt.Fprintf(b, "%s%s%s\n", l.String(), strings.Repeat(" ", at), text)
		l.Reset()
	}
}

// marks has a letter for each task at moment n: # holds a lock, w waits, W both, . neither; a blank
// has ended or not begun.
func (t *table) marks(n int) string {
	var b strings.Builder
	m := At(t.tr, n)
	for _, task := range t.tasks {
		a := &m.Tasks[task]
		switch {
		case a.Phase == Ended || a.Phase == Idle:
			b.WriteByte(' ')
		case a.Phase == Waiting && len(a.Held) > 0:
			b.WriteByte('W')
		case a.Phase == Waiting:
			b.WriteByte('w')
		case len(a.Held) > 0:
			b.WriteByte('#')
		default:
			b.WriteByte('.')
		}
	}
	return b.String()
}

// forever prints what tasks wait for that go on no more.
func (t *table) forever(b *strings.Builder) {
	n := len(t.tr.Steps)
	m := At(t.tr, n)
	for _, task := range t.tasks {
		a := &m.Tasks[task]
		if a.Phase != Waiting || stuck(t.tr, task) == nil {
			continue
		}
		text := "waits for ever: " + a.For.Name
		if a.Whom != "" {
			text = "waits for ever: " + a.Whom
		} else if h := m.Holder(task); h >= 0 {
			text += fmt.Sprintf(", held by %d", h)
		}
		t.row(b, "end", m.State, t.marks(n), task, text)
	}
}

// legend says what the marks mean that are used.
func (t *table) legend(say func(format string, args ...any)) {
	used := func(mark string) bool {
		return slices.ContainsFunc(t.lines, func(l line) bool { return strings.Contains(l.mark, mark) })
	}
	say("The letters before the words, after the step: # holds a lock, w waits,\nW both, . neither.")
	if slices.ContainsFunc(t.tr.Steps, func(s scenario.TraceStep) bool {
		return (s.Kind == "lock" || s.Kind == "trylock") && s.Class == "i_rwsem" && slices.Contains(t.tasks, s.Task)
	}) {
		say("i_rwsem is taken exclusive, unless a line says shared.")
	}
	if slices.Contains(t.tr.Columns, "pages") {
		say("pages has a letter a page: %s.", pageLetters)
	}
	if used(">") {
		say("> marks a preemption: the task before could have gone on.")
	}
	if !used("!") {
		return
	}
	say("! marks step %d, %s.", t.culprit, culpritText(t.tr))
}

// WriteExhibit prints an exhibit of the museum: story, timeline, and the proof of the fix.
func WriteExhibit(w io.Writer, x *scenario.Shown, lay Layout) error {
	var b strings.Builder
	width := max(lay.Width, prose.Width)
	say := func(format string, args ...any) { fmt.Fprintln(&b, prose.Fill(fmt.Sprintf(format, args...), width)) }
	say("%d. %s (%s)\n\n%s\n\nRule: %s.\n", x.Number, x.Title, x.Source, x.Story, x.Rule)
	if x.Trace != nil {
		if err := WriteText(&b, x.Trace, lay); err != nil {
			return err
		}
	}
	order := func(which, policy string, bound explore.Coverage) {
		for _, l := range prose.Hang(which, strings.Repeat(" ", len(which)), fmt.Sprintf("--policy %s: %v", policy, bound), width) {
			fmt.Fprintln(&b, l)
		}
	}
	b.WriteByte('\n')
	order("wrong order  ", x.Broken, x.Found.Bound)
	if x.Found.Replay != "" {
		fmt.Fprintln(&b, prose.Command("            ", x.Found.Replay, width))
	}
	order("right order  ", x.Fixed, x.Proof.Bound)
	_, err := io.WriteString(w, b.String())
	return err
}
