package levels

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// TextExample is a program in the language that Parse reads.
const TextExample = `# Two tasks add one to x. The lock is let go between the read and the write.
x = 0
lock m
rule x is 2

task a
  lock m
  r = x
  unlock m
  x = r + 1

task b
  lock m
  x += 1
  unlock m
`

// What a text may have.
const (
	maxText  = 4_000 // bytes
	maxLines = 40    // of all tasks
	maxTasks = 6
	maxWords = 8 // and locks
)

var name = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,11}$`)

// text is a program on its way from a text.
type text struct {
	level *Level
	code  code // of the task that is read
	rule  int  // its line, 0 for none
	lines int
}

// Parse reads a program from a text. Before the first task stand the shared words with their first
// values, "x = 0", the locks, "lock m", and perhaps "rule x is 2", or "rule x is 2 or 3"; without a
// rule every task has to come to its end. "task a" begins a task, and each line after it is a step.
// An error names the line and what is expected there.
func Parse(program string) (*Level, error) {
	if len(program) > maxText {
		return nil, fmt.Errorf("bad program, have %d bytes want at most %d", len(program), maxText)
	}
	p := &text{level: &Level{Name: "program", Title: "a program of your own"}}
	for i, line := range strings.Split(program, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			continue
		}
		if err := p.line(line, i+1); err != nil {
			return nil, fmt.Errorf("line %d: have %q, want %w", i+1, line, err)
		}
	}
	l := p.level
	if len(l.Tasks) < 2 {
		return nil, fmt.Errorf("have %d tasks, want two or more: a line \"task NAME\" begins one, and its steps stand below it", len(l.Tasks))
	}
	for _, t := range l.Tasks {
		if len(t.Lines) == 0 {
			return nil, fmt.Errorf("task %s has no step, want a line below it", t.Name)
		}
	}
	return l, nil
}

// line reads a line. The error is what is expected.
func (p *text) line(line string, number int) error {
	l := p.level
	first, rest, _ := strings.Cut(line, " ")
	if first == "task" {
		switch {
		case !name.MatchString(rest) || slices.ContainsFunc(l.Tasks, func(t Task) bool { return t.Name == rest }):
			return fmt.Errorf("task and a name that no other task has")
		case len(l.Tasks) == maxTasks:
			return fmt.Errorf("at most %d tasks", maxTasks)
		}
		l.Tasks = append(l.Tasks, Task{Name: rest})
		p.code = code{}
		return nil
	}
	if len(l.Tasks) == 0 {
		return p.declare(line, number)
	}
	if p.lines++; p.lines > maxLines {
		return fmt.Errorf("at most %d steps in all tasks", maxLines)
	}
	if _, err := l.parse(&p.code, line); err != nil {
		return err
	}
	t := &l.Tasks[len(l.Tasks)-1]
	t.Lines = append(t.Lines, line)
	return nil
}

// declare reads a line before the first task.
func (p *text) declare(line string, number int) error {
	l := p.level
	first, rest, _ := strings.Cut(line, " ")
	if left, right, ok := strings.Cut(line, " = "); ok {
		n, err := strconv.Atoi(right)
		if err != nil || n < -1000 || n > 1000 || !p.free(left) {
			return fmt.Errorf("a new name, = and a number from -1000 to 1000: x = 0")
		}
		l.Words = append(l.Words, Word{left, n})
		return p.few()
	}
	switch first {
	case "lock":
		if !p.free(rest) {
			return fmt.Errorf("lock and a new name")
		}
		l.Locks = append(l.Locks, rest)
		return p.few()
	case "rule":
		word, values, ok := strings.Cut(rest, " is ")
		if !ok || l.word(word) < 0 || p.rule > 0 {
			return fmt.Errorf("one rule about a word of the lines before: rule x is 2, or: rule x is 2 or 3")
		}
		for _, v := range strings.Split(values, " or ") {
			n, err := strconv.Atoi(v)
			if err != nil {
				return fmt.Errorf("numbers with \"or\" between them: rule x is 2 or 3")
			}
			l.Values = append(l.Values, n)
		}
		l.Keeps, p.rule = word, number
		return nil
	}
	return fmt.Errorf("a word (x = 0), a lock (lock m), a rule (rule x is 2) or a task (task a)")
}

// free reports whether s can be the name of another word or lock.
func (p *text) free(s string) bool {
	return name.MatchString(s) && !slices.Contains([]string{"lock", "unlock", "task", "rule", "max"}, s) && p.level.word(s) < 0 && !slices.Contains(p.level.Locks, s)
}

func (p *text) few() error {
	if n := len(p.level.Words) + len(p.level.Locks); n > maxWords {
		return fmt.Errorf("at most %d words and locks", maxWords)
	}
	return nil
}
