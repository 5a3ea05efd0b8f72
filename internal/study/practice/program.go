package practice

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/scenario"
)

// program is a subject of a few lines.
type program struct {
	l   *levels.Level
	see string // a word, or task.name
}

func (p *program) tell() []Para {
	l := []Para{{Text: "Each line is one step. A name that stands for no shared word is the task's own."}}
	if len(p.l.Locks) > 0 {
		l[0].Text += " A lock that is held by another task is waited for."
	}
	return append(l, Para{Lines: strings.Split(strings.TrimRight(p.l.Code(), "\n"), "\n")})
}

func (p *program) rule() string {
	return p.l.Rule() + ", as after some order of the tasks one after another, and every task ends"
}

func (p *program) observed() (what, form string) {
	form = "Each is a number."
	if task, own, ok := strings.Cut(p.see, "."); ok {
		return fmt.Sprintf("what can task %s have read into %s at the end", task, own), form
	}
	return fmt.Sprintf("what can %s be at the end", p.see), form
}

func (p *program) valid(outcome string) error {
	if n, err := strconv.Atoi(outcome); err != nil || fmt.Sprint(n) != outcome {
		return fmt.Errorf("numbers")
	}
	return nil
}

// judged is the program, judged by its rule or by what seen says.
func (p *program) judged(seen func(string) error) func(w *explore.World) {
	if seen == nil {
		return p.l.Program()
	}
	return p.l.Judged(func(end levels.End) error {
		n, _ := end(p.see)
		return seen(fmt.Sprint(n))
	})
}

func (p *program) search(seen func(string) error, change func(*explore.Config)) (explore.Result, error) {
	cfg := p.l.Config()
	change(&cfg)
	return explore.Run(cfg, p.judged(seen)), nil
}

func (p *program) record(seen func(string) error, schedule string) (*scenario.Trace, error) {
	return p.l.Record(schedule, p.judged(seen)), nil
}

// meets says that at least two tasks use the word that is judged: else there is nothing to break.
func (p *program) meets() bool {
	n := 0
	for _, t := range p.l.Tasks {
		if slices.ContainsFunc(t.Lines, func(l string) bool { return slices.Contains(strings.Fields(l), p.l.Keeps) }) {
			n++
		}
	}
	return n > 1
}

// body is the code of a task on shared words: lines without locks.
func body(r *random, level int) []string {
	x, y := "x", "x"
	if level > 1 {
		x = of(r, "x", "x", "y")
		y = of(r, "x", "y")
	}
	k := 1 + r.under(9)
	load, add := "r = "+x, fmt.Sprintf("%s = r + %d", x, k)
	switch n := r.under(3 + 4*min(level-1, 1)); n {
	case 0, 1:
		return []string{load, add}
	case 2:
		if level == 1 && r.chance(50) {
			return []string{load, add, fmt.Sprintf("%s += %d", x, 1+r.under(9))}
		}
		return []string{fmt.Sprintf("%s += %d", x, k)}
	case 3:
		return []string{load, x + " = r + r"}
	case 4:
		return []string{load, fmt.Sprintf("%s = r + %d", y, k)}
	case 5:
		return []string{"r = x", "s = y", y + " = r + s"}
	default:
		return []string{load, fmt.Sprintf("%s = max(r, %d)", y, 3*k)}
	}
}

// locked puts locks around lines, in a way that may be wrong.
func locked(r *random, locks []string, lines []string) []string {
	around := func(m string, lines ...string) []string {
		return append(append([]string{"lock " + m}, lines...), "unlock "+m)
	}
	if len(locks) == 0 {
		return lines
	}
	m := of(r, locks...)
	n := m
	if len(locks) > 1 {
		for n == m {
			n = of(r, locks...)
		}
	}
	switch c := r.under(10); {
	case c < 2:
		return lines
	case c < 6 || c < 8 && n == m:
		return around(m, lines...)
	case c < 8:
		return around(m, around(n, lines...)...)
	}
	var l []string
	for _, line := range lines { // every access by itself
		l = append(l, around(m, line)...)
	}
	return l
}

// newProgram draws a program.
func newProgram(r *random, level int, kind Kind) *program {
	l := &levels.Level{Name: "practice", Title: "a program of a few lines", Words: []levels.Word{{Name: "x", Value: r.under(10)}}}
	tasks, bodies := 2, 1
	if r.chance(75) {
		l.Locks = []string{"m"}
	}
	if level > 1 {
		l.Words = append(l.Words, levels.Word{Name: "y", Value: r.under(10)})
		tasks = 2 + r.under(2)
		l.Locks = of(r, nil, []string{"m"}, []string{"m", "n"}, []string{"m", "n"})
	}
	if level > 2 {
		tasks, bodies = of(r, 2, 3, 3), 2
	}
	for i := range tasks {
		t := levels.Task{Name: string(rune('a' + i))}
		for range 1 + r.under(bodies) {
			t.Lines = append(t.Lines, locked(r, l.Locks, body(r, level))...)
		}
		l.Tasks = append(l.Tasks, t)
	}
	used := func(name string) bool {
		return slices.ContainsFunc(l.Tasks, func(t levels.Task) bool {
			return slices.ContainsFunc(t.Lines, func(line string) bool { return slices.Contains(strings.Fields(line), name) })
		})
	}
	l.Words = slices.DeleteFunc(l.Words, func(w levels.Word) bool { return !used(w.Name) })
	l.Locks = slices.DeleteFunc(slices.Clone(l.Locks), func(m string) bool { return !used(m) })
	p := &program{l: l}
	var places []string
	for _, w := range l.Words {
		places = append(places, w.Name)
	}
	l.Keeps = of(r, places...)
	p.see = l.Keeps
	if kind == See && r.chance(35) { // what a task has read
		t := of(r, l.Tasks...)
		for _, own := range []string{"s", "r"} {
			if slices.ContainsFunc(t.Lines, func(line string) bool { return strings.HasPrefix(line, own+" = ") }) {
				p.see = t.Name + "." + own
				break
			}
		}
	}
	l.Values = p.serial()
	return p
}

// serial are the values that the judged word can have after the tasks have run one after another,
// in any order.
func (p *program) serial() []int {
	var values []int
	n := len(p.l.Tasks)
	order := make([]int, 0, n)
	var permute func()
	permute = func() {
		if len(order) == n {
			l := *p.l
			l.Tasks = nil
			for _, i := range order {
				l.Tasks = append(l.Tasks, p.l.Tasks[i])
			}
			l.Record("", l.Judged(func(end levels.End) error {
				if v, ok := end(l.Keeps); ok && !slices.Contains(values, v) {
					values = append(values, v)
				}
				return nil
			}))
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				order = append(order, i)
				permute()
				order = order[:len(order)-1]
			}
		}
	}
	permute()
	slices.Sort(values)
	return values
}
