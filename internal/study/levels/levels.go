// Package levels has the levels of lab 00: programs of a few lines in which a player chooses who
// runs. A level is won with a schedule that breaks it, or with the word never where none does; the
// explorer decides.
//
// Model: a level is text, and the text is what runs. Each line is one step: it locks, unlocks, or
// reads or changes one word. Names that are no word of the level are a task's own. Memory is
// sequentially consistent.
package levels

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Level is one program and what must hold when all of its tasks have ended.
type Level struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Story says what the level is about, and Moral, shown once it is won, what it has shown.
	Story string `json:"story"`
	Moral string `json:"moral"`
	// Words are shared, each with its value at the start. Locks are free at the start.
	Words []Word   `json:"words,omitempty"`
	Locks []string `json:"locks,omitempty"`
	Tasks []Task   `json:"tasks"`
	// Keeps is the word that is judged when all have ended, and Values are those that are right. A
	// deadlock is never right.
	Keeps  string `json:"keeps,omitempty"`
	Values []int  `json:"values,omitempty"`
	// Points are the points of a winning answer in lab 00.
	Points float64 `json:"points"`
}

// Word is a shared number.
type Word struct {
	Name  string `json:"name"`
	Value int    `json:"value"`
}

// Task is one column of the program.
type Task struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
}

// Never is the answer that no schedule breaks the level.
const Never = "never"

// Lookup finds a level by its name.
func Lookup(name string) (*Level, error) {
	var have []string
	for _, l := range All {
		if l.Name == name {
			return l, nil
		}
		have = append(have, l.Name)
	}
	return nil, fmt.Errorf("unknown level %q, have %s", name, strings.Join(have, ", "))
}

// Rule is the sentence that must hold.
func (l *Level) Rule() string {
	if l.Keeps == "" {
		return "every task comes to its end"
	}
	return fmt.Sprintf("%s is %s at the end", l.Keeps, l.right())
}

// right is the values that are right, in words: "2 or 3".
func (l *Level) right() string {
	var v []string
	for _, x := range l.Values {
		v = append(v, fmt.Sprint(x))
	}
	return strings.Join(v, " or ")
}

// Goal is the task for the player.
func (l *Level) Goal() string {
	return "find a schedule after which this is not so, or say never: " + l.Rule()
}

// Code is the program as text: the words, then the tasks as columns.
func (l *Level) Code() string {
	var b strings.Builder
	for _, w := range l.Words {
		fmt.Fprintf(&b, "%s = %d\n", w.Name, w.Value)
	}
	rows, wide := 0, make([]int, len(l.Tasks))
	for i, t := range l.Tasks {
		rows = max(rows, len(t.Lines))
		wide[i] = len(t.Name) + 2
		for _, x := range t.Lines {
			wide[i] = max(wide[i], len(x))
		}
	}
	for r := -1; r < rows; r++ {
		var row strings.Builder
		for i, t := range l.Tasks {
			text := ""
			if r < 0 {
				text = fmt.Sprintf("%d %s", i, t.Name)
			} else if r < len(t.Lines) {
				text = t.Lines[r]
			}
			fmt.Fprintf(&row, "%-*s    ", wide[i], text)
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	return b.String()
}

// The classes of the words and the locks.
var (
	wordClass = lockdep.NewClass("level_word")
	lockClass = lockdep.NewClass("level_lock")
)

// maxSchedules bounds the search of one level; the largest needs a fraction of it.
const maxSchedules = 100_000

// Config is how levels are searched. Locks in both orders are no error by themselves here: a level
// is about the schedule that hangs.
func (l *Level) Config() explore.Config {
	return explore.Config{Schedules: maxSchedules, MaxSteps: 1_000, Off: explore.CheckLockOrder}
}

// Program is the level for the explorer. It panics on a text that is no program, which a test
// excludes.
func (l *Level) Program() func(w *explore.World) { return l.Judged(l.check) }

// End gives a value at the end of an execution: of a word, or as "task.name" of a name that only
// that task has. False is no such name.
type End func(name string) (int, bool)

// Judged is Program with another rule, which is asked at the end of every execution in which all
// tasks have ended. A search with several jobs asks it concurrently.
func (l *Level) Judged(rule func(End) error) func(w *explore.World) {
	code, err := l.compile()
	if err != nil {
		panic("levels: " + l.Name + ": " + err.Error())
	}
	return func(w *explore.World) {
		r, ok := (*w.Kept()).(*running)
		if !ok {
			r = l.running(code, rule)
			*w.Kept() = r
		}
		l.start(w, r, code)
	}
}

// running is the memory of executions, and their rule.
func (l *Level) running(code []code, rule func(End) error) *running {
	r := &running{words: make([]explore.Atomic[int], len(l.Words)), locks: make([]lock.Mutex, len(l.Locks)), tasks: make([]machine, len(l.Tasks))}
	for i := range r.words {
		r.words[i].Class = wordClass.ID
	}
	for i := range r.locks {
		r.locks[i].Init(lockClass)
	}
	for i := range r.tasks {
		r.tasks[i] = machine{running: r, ops: code[i].ops, own: make([]int, len(code[i].own))}
	}
	end := func(name string) (int, bool) {
		if i := l.word(name); i >= 0 {
			return r.words[i].Peek(), true
		}
		task, own, _ := strings.Cut(name, ".")
		if i := slices.IndexFunc(l.Tasks, func(t Task) bool { return t.Name == task }); i >= 0 {
			if k := slices.Index(code[i].own, own); k >= 0 {
				return r.tasks[i].own[k], true
			}
		}
		return 0, false
	}
	r.check = func() error { return rule(end) }
	return r
}

// start begins an execution.
func (l *Level) start(w *explore.World, r *running, code []code) {
	for i := range r.words {
		r.words[i].Init(l.Words[i].Value)
		w.Name(&r.words[i], l.Words[i].Name)
	}
	for i := range r.locks {
		r.locks[i].Reset()
		w.Name(&r.locks[i], l.Locks[i])
	}
	for i := range r.tasks {
		m := &r.tasks[i]
		m.at = 0
		clear(m.own)
		w.GoMachine(l.Tasks[i].Name, m)
	}
	w.Check(r.check)
	if w.Tracing() {
		l.watch(w, r, code)
	}
}

// watch adds the words, and the names that only a task has, to the steps of a traced run.
func (l *Level) watch(w *explore.World, r *running, code []code) {
	for i := range r.words {
		w.Watch(l.Words[i].Name, func() string { return fmt.Sprint(r.words[i].Peek()) })
	}
	for i, t := range l.Tasks {
		for k, name := range code[i].own {
			w.Watch(t.Name+"."+name, func() string { return fmt.Sprint(r.tasks[i].own[k]) })
		}
	}
}

// check judges the values at the end.
func (l *Level) check(end End) error {
	if got, ok := end(l.Keeps); ok && !slices.Contains(l.Values, got) {
		return fmt.Errorf("%s is %d at the end, want %s", l.Keeps, got, l.right())
	}
	return nil
}

// Replay runs one schedule and records every step; a step is named by its line.
func (l *Level) Replay(schedule string) *scenario.Trace { return l.Record(schedule, l.Program()) }

// Record is Replay of what Judged has made of the level.
func (l *Level) Record(schedule string, program func(w *explore.World)) *scenario.Trace {
	x := explore.Replay(l.Config(), schedule, program)
	tr := scenario.TraceOf(&x, len(l.Tasks))
	tr.Scenario, tr.About, tr.Policy = l.Name, l.Title, "level"
	tr.Replay = l.Command(schedule)
	done := make([]int, len(tr.Tasks))
	for i := range tr.Steps {
		s := &tr.Steps[i]
		if s.Kind != "start" {
			if s.Class == wordClass.Name {
				s.What = scenario.What{Verb: l.Tasks[s.Task].Lines[done[s.Task]]}
			}
			done[s.Task]++
		}
	}
	return tr
}

// Command is the shell command that judges an answer.
func (l *Level) Command(answer string) string {
	return fmt.Sprintf("btrlab lab run 0 %s '%s'", l.Name, answer)
}

// Verdict is the judgement of an answer.
type Verdict struct {
	Won bool `json:"won"`
	// Fits says that the answer is one: never, or a schedule that the program can follow.
	Fits bool `json:"fits"`
	// Says is the verdict in a sentence or two.
	Says string `json:"says"`
	// Schedules is how many a search has run, 0 for an answer that is a schedule.
	Schedules int `json:"schedules,omitempty"`
	// Trace is the execution that decides; nil after a search that found none.
	Trace *scenario.Trace `json:"trace,omitempty"`
}

// Search runs every schedule of the level, or as many as it takes to break it with the fewest
// preemptions.
func (l *Level) Search() explore.Result { return explore.Run(l.Config(), l.Program()) }

// Judge decides an answer: a schedule must break the level, never must be so.
func (l *Level) Judge(answer string) Verdict {
	answer = strings.TrimSpace(answer)
	if strings.EqualFold(answer, Never) {
		return l.judgeNever()
	}
	tr := l.Replay(answer)
	v := Verdict{Fits: tr.Kind != explore.KindMisfit, Trace: tr}
	switch tr.Kind {
	case explore.KindMisfit:
		v.Says, v.Trace = "this is no schedule of the level: "+tr.Violation.Line(), nil
	case explore.OK:
		v.Says = fmt.Sprintf("this schedule breaks nothing: %s", l.Rule())
	default:
		v.Won = true
		v.Says = fmt.Sprintf("broken (%s), with %s: %s", tr.Kind, prose.Count(tr.Preemptions, "preemption"), tr.Violation.Line())
	}
	return v
}

func (l *Level) judgeNever() Verdict {
	r := l.Search()
	v := Verdict{Fits: true, Schedules: r.Schedules}
	switch r.Verdict {
	case explore.Exhausted:
		v.Won, v.Says = true, fmt.Sprintf("never: %s; in each of them %s", r.Bound, l.Rule())
	case explore.Violated:
		v.Trace = l.Replay(r.Schedule)
		v.Says = fmt.Sprintf("it can be broken, with %s: %s", prose.Count(r.Preemptions, "preemption"), r.Violation.Line())
	default:
		v.Says = r.Bound.String()
	}
	return v
}
