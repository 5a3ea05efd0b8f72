package levels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// opKind is the operation of a line.
type opKind uint8

const (
	opLock   opKind = iota // lock L
	opUnlock               // unlock L
	opLoad                 // own = word
	opStore                // word = value
	opAdd                  // word += value, in one step
)

// op is a line of a task. obj is the index of its lock or word.
type op struct {
	kind opKind
	obj  int
	own  int   // of a load
	val  value // of a store or an add
}

// value is one operand, the sum of two, or the greater of two.
type value struct {
	a, b operand
	two  bool
	max  bool
}

// operand is a number, or the task's own name with the index own when that is not negative.
type operand struct{ num, own int }

func (o operand) of(own []int) int {
	if o.own >= 0 {
		return own[o.own]
	}
	return o.num
}

func (v value) of(own []int) int {
	a, b := v.a.of(own), v.b.of(own)
	switch {
	case v.max:
		return max(a, b)
	case v.two:
		return a + b
	}
	return a
}

// running is the execution of a level, in memory that the next one uses again.
type running struct {
	words []explore.Atomic[int]
	locks []lock.Mutex
	tasks []machine
	check func() error
}

// machine is a task: an explore.Machine.
type machine struct {
	*running
	ops []op
	at  int   // the operation that comes next; the one before is the one to be done
	own []int // the values of the names that only the task has
}

// Step does the operation that the task stands at, and names the next one.
func (m *machine) Step(t *sched.Task) bool {
	if m.at > 0 {
		m.end(t, &m.ops[m.at-1])
	}
	if m.at == len(m.ops) {
		return false
	}
	o := &m.ops[m.at]
	m.at++
	switch o.kind {
	case opLock:
		m.locks[o.obj].BeginLock(t)
	case opUnlock:
		m.locks[o.obj].BeginUnlock(t)
	case opLoad:
		m.words[o.obj].BeginLoad(t)
	case opStore, opAdd:
		m.words[o.obj].BeginChange(t)
	}
	return true
}

// end does operation o.
func (m *machine) end(t *sched.Task, o *op) {
	switch o.kind {
	case opLock:
		m.locks[o.obj].EndLock(t)
	case opUnlock:
		m.locks[o.obj].EndUnlock(t)
	case opLoad:
		m.own[o.own] = m.words[o.obj].EndLoad(t)
	case opStore:
		m.words[o.obj].EndStore(t, o.val.of(m.own))
	case opAdd:
		m.words[o.obj].EndUpdate(t, func(x int) int { return x + o.val.of(m.own) })
	}
}

// code is a task, compiled: own are the names that only it has.
type code struct {
	ops []op
	own []string
}

// compile reads the lines of all tasks.
func (l *Level) compile() ([]code, error) {
	all := make([]code, len(l.Tasks))
	for i, t := range l.Tasks {
		for n, line := range t.Lines {
			o, err := l.parse(&all[i], line)
			if err != nil {
				return nil, fmt.Errorf("task %s, line %d: bad line, have %q want %w", t.Name, n+1, line, err)
			}
			all[i].ops = append(all[i].ops, o)
		}
	}
	return all, nil
}

func (l *Level) word(name string) int {
	return slices.IndexFunc(l.Words, func(w Word) bool { return w.Name == name })
}

// parse reads one line.
func (l *Level) parse(c *code, line string) (op, error) {
	f := strings.Fields(line)
	if len(f) == 2 && (f[0] == "lock" || f[0] == "unlock") {
		at := slices.Index(l.Locks, f[1])
		if at < 0 {
			if len(l.Locks) == 0 {
				return op{}, fmt.Errorf("a lock that is named before the tasks: lock m")
			}
			return op{}, fmt.Errorf("one of the locks %s", strings.Join(l.Locks, ", "))
		}
		if f[0] == "lock" {
			return op{kind: opLock, obj: at}, nil
		}
		return op{kind: opUnlock, obj: at}, nil
	}
	left, right, ok := strings.Cut(line, " = ")
	kind := opStore
	if !ok {
		left, right, ok = strings.Cut(line, " += ")
		kind = opAdd
	}
	if !ok {
		return op{}, fmt.Errorf("lock, unlock, = or +=")
	}
	to, from := l.word(left), l.word(right)
	switch {
	case to < 0 && kind == opStore && from >= 0:
		if !slices.Contains(c.own, left) {
			c.own = append(c.own, left)
		}
		return op{kind: opLoad, obj: from, own: slices.Index(c.own, left)}, nil
	case to < 0:
		return op{}, fmt.Errorf("a shared word on one side")
	}
	v, err := c.value(right)
	return op{kind: kind, obj: to, val: v}, err
}

// value reads "A", "A + B" or "max(A, B)" of numbers and the task's own names.
func (c *code) value(text string) (value, error) {
	v := value{b: operand{own: -1}}
	a, b, two := strings.Cut(text, " + ")
	if args, ok := strings.CutPrefix(text, "max("); ok {
		a, b, two = strings.Cut(strings.TrimSuffix(args, ")"), ", ")
		v.max = true
	}
	v.two = two
	var err error
	if v.a, err = c.operand(a); err == nil && two {
		v.b, err = c.operand(b)
	}
	return v, err
}

func (c *code) operand(text string) (operand, error) {
	if n, err := strconv.Atoi(text); err == nil {
		return operand{num: n, own: -1}, nil
	}
	if i := slices.Index(c.own, text); i >= 0 {
		return operand{own: i}, nil
	}
	return operand{}, fmt.Errorf("numbers and names that the task has read")
}
