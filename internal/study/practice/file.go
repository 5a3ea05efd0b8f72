package practice

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// file is a subject on the real write path: operations on one file under a policy.
type file struct {
	s      *scenario.Scenario
	policy *policy.Policy
	reader int // the operation whose bytes are seen, from 1; 0 is the file at the end
}

// unit is the bytes that a character of an outcome stands for: every offset of a question is a
// multiple of it.
const unit = 4096

// Characters of an outcome that are no writer's letter.
const (
	charBefore = '-'
	charZero   = '.'
	charMixed  = '?' // no question can show it, because offsets are multiples of unit
	emptyFile  = "empty"
)

func letter(id oracle.ID) byte { return 'A' + byte(id) - 1 }

func (f *file) tell() []Para {
	var rows []string
	id := oracle.ID(0)
	for i, t := range f.s.Tasks {
		for j, o := range t.Ops {
			id++
			head := fmt.Sprintf("%d %-9s", i, t.Name)
			if j > 0 {
				head = strings.Repeat(" ", len(head))
			}
			mark := "  "
			if o.Kind == scenario.OpWrite {
				mark = string(letter(id)) + ":"
			}
			rows = append(rows, fmt.Sprintf("%s  %s %s", head, mark, o))
		}
	}
	return []Para{
		{Text: fmt.Sprintf("A file of %s, all of it in memory and clean. Each task does what stands in its line, on the real write path; [lo, hi) is "+
			"a range of bytes without hi.", oracle.Offset(f.s.File.Size))},
		{Lines: rows},
		{Text: fmt.Sprintf("The locking policy is %s: %s. Tasks are switched at %s; elsewhere they go on unless they must wait.", f.policy.Name, f.policy.About,
			strings.Join(f.s.Switch, ", "))},
	}
}

func (f *file) rule() string {
	return "some order of the operations, one after another, explains every byte of the file, its size, and page by page what was read"
}

func (f *file) observed() (what, form string) {
	form = fmt.Sprintf("Each is a word with a character for every %s, from the beginning: the letter of the write that a byte came from, %c for what "+
		"was there before, %c for zeros; its length is the size. No bytes at all is the word %s.", oracle.Offset(unit), charBefore, charZero, emptyFile)
	if f.reader > 0 {
		return "what can the reader get", form
	}
	return "what can the file be at the end", form
}

func (f *file) valid(outcome string) error {
	if outcome == emptyFile {
		return nil
	}
	for _, c := range outcome {
		if c != charBefore && c != charZero && (c < 'A' || c > 'Z') {
			return fmt.Errorf("letters of writes, %c and %c, or %s", charBefore, charZero, emptyFile)
		}
	}
	return nil
}

// outcome returns the state of the question's place by a history.
func (f *file) outcome(h *oracle.History) (string, error) {
	seen, lo, size := h.Final, int64(0), h.FinalSize
	if f.reader > 0 {
		i := slices.IndexFunc(h.Ops, func(o oracle.Op) bool { return o.ID == oracle.ID(f.reader) })
		if i < 0 {
			return "", errors.New("the read is not in the history")
		}
		seen, lo, size = h.Ops[i].See, h.Ops[i].Lo, h.Ops[i].Got
	}
	if size == 0 {
		return emptyFile, nil
	}
	b := make([]byte, (size+unit-1)/unit)
	for _, s := range seen {
		c := byte(charBefore)
		switch {
		case s.From == oracle.Zero:
			c = charZero
		case s.From > 0:
			c = letter(s.From)
		case s.From != oracle.Initial:
			c = charMixed
		}
		for at := (s.Lo - lo) / unit; at*unit < s.Hi-lo; at++ {
			if b[at] != 0 && b[at] != c {
				c = charMixed
			}
			b[at] = c
		}
	}
	return string(b), nil
}

// judged is the scenario, judged by its rule or by what seen says.
func (f *file) judged(seen func(string) error) *scenario.Scenario {
	if seen == nil {
		return f.s
	}
	return f.s.WithEnd(func(h *oracle.History) error {
		x, err := f.outcome(h)
		if err != nil {
			return err
		}
		return seen(x)
	})
}

func (f *file) search(seen func(string) error, change func(*explore.Config)) (explore.Result, error) {
	s := f.judged(seen)
	cfg, err := s.Config()
	if err != nil {
		return explore.Result{}, err
	}
	change(&cfg)
	prog, err := s.Program(f.policy, false)
	if err != nil {
		return explore.Result{}, err
	}
	return explore.Run(cfg, prog), nil
}

func (f *file) record(seen func(string) error, schedule string) (*scenario.Trace, error) {
	return scenario.Replay(f.judged(seen), f.policy, schedule, false)
}

// pages are bytes.
func pages(n int) int64 { return int64(n) * unit }

// other is an operation that meets a write of a file of n pages; c chooses.
func other(r *random, n int, c string) (name string, o scenario.Op) {
	at := r.under(n)
	long := 1 + r.under(n-at)
	switch c {
	case "truncate":
		return c, scenario.Truncate(pages(r.under(n + 2)))
	case "punch":
		return c, scenario.Punch(pages(at), pages(long))
	case "writer":
		return c, scenario.Write(pages(at), pages(long+r.under(2)))
	}
	return "reader", scenario.Read(pages(at), pages(long+r.under(2)))
}

// newFile draws operations on a file, and a policy. With broken set it draws from those that are
// likely to break the rule.
func newFile(r *random, level int, kind Kind, broken bool) *file {
	f := &file{policy: policy.MustParse(of(r, policy.Names()...))}
	s := &scenario.Scenario{Name: "practice", About: "operations on one file", Switch: []string{"i_rwsem", "dio_wait", "range_lock", "page", "extent"},
		Rule: oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesWith}}
	broken = broken && kind != See
	if broken {
		f.policy = policy.MustParse(of(r, "unlocked", "unlocked", "unlocked-drain"))
	}
	n := 3 + r.under(6) // pages
	at := r.under(n - 1)
	write := scenario.Write(pages(at), pages(2+r.under(n-1-at)+r.under(3)/2))
	what := of(r, "truncate", "truncate", "punch", "writer", "reader")
	tasks := 2
	switch {
	case kind == See && r.chance(40):
		what = "reader"
	case broken && level == 4:
		f.policy, what = policy.MustParse("unlocked"), "truncate"
	}
	if level > 4 {
		if r.chance(15) {
			tasks = 3
		} else { // two batches: 8 pages are the smallest
			n = 9 + r.under(8)
			at = r.under(min(2, n-8))
			write = scenario.Write(pages(at), pages(9+r.under(n-8-at)))
		}
		s.Switch = []string{"i_rwsem", "dio_wait", "range_lock", "extent", "fault_in"}
	}
	s.Tasks = []scenario.Task{{Name: "writer", Ops: []scenario.Op{write}}}
	for i := 1; i < tasks; i++ {
		name, o := other(r, n, what)
		if name == "writer" && n > 8 && r.chance(70) {
			at := r.under(n - 8)
			o = scenario.Write(pages(at), pages(9+r.under(n-8-at)))
		}
		s.Tasks = append(s.Tasks, scenario.Task{Name: name, Ops: []scenario.Op{o}})
		what = of(r, "truncate", "writer")
	}
	if r.chance(50) {
		s.Tasks[0], s.Tasks[1] = s.Tasks[1], s.Tasks[0]
	}
	for i, t := range s.Tasks {
		if kind == See && t.Name == "reader" {
			f.reader = i + 1 // every task has one operation
		}
	}
	s.File = scenario.File{Size: pages(n), Cached: []oracle.Range{{Lo: 0, Hi: pages(n)}}}
	s.Image = fmt.Sprintf("practice-%d-pages", n)
	names := map[string]int{}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if names[t.Name]++; names[t.Name] > 1 {
			t.Name += fmt.Sprint(names[t.Name])
		}
	}
	f.s = s
	return f
}
