package scenario

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"btrlab/internal/judge/oracle"
)

// randomPrefix begins the names of drawn scenarios: random-SEED-NUMBER.
const randomPrefix = "random-"

// Random draws n scenarios by a seed. Number i is the same whatever n is.
func Random(seed uint64, n int) []*Scenario {
	var l []*Scenario
	for i := range n {
		l = append(l, draw(seed, i+1))
	}
	return l
}

// drawn finds a drawn scenario by its name.
func drawn(name string) (*Scenario, bool) {
	rest, ok := strings.CutPrefix(name, randomPrefix)
	seed, number, both := strings.Cut(rest, "-")
	s, err := strconv.ParseUint(seed, 10, 64)
	n, err2 := strconv.Atoi(number)
	if !ok || !both || err != nil || err2 != nil || n < 1 {
		return nil, false
	}
	x := draw(s, n)
	return x, x.Name == name
}

// draw makes a scenario of three tasks with three or four operations: a file of a few pages,
// writers inside EOF for the most part, and what may meet them. Tasks are switched at the locks of
// whole operations, and between the batches of a write that has two.
func draw(seed uint64, number int) *Scenario {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	const page = 4 * k
	pages := 3 + r.Int64N(4)
	s := &Scenario{Name: fmt.Sprintf("%s%d-%d", randomPrefix, seed, number), Switch: append([]string{}, joinClasses...), Rule: calls, Preemptions: 2}
	batches := r.IntN(5) == 0 // some write has two
	if batches {
		pages = 10 + r.Int64N(4)
		s.Switch = append(s.Switch, "fault_in")
	}
	s.File = File{Size: pages * page, Cached: all(pages * page)}
	s.Image = fmt.Sprintf("random, %d pages", pages)
	write := func() (string, Op) {
		n := 1 + r.Int64N(2)
		if batches && r.IntN(2) == 0 {
			n = 9
		}
		switch at := r.Int64N(pages - n + 1); r.IntN(8) {
		case 0:
			return "append", Op{Kind: OpWrite, N: n * page, Append: true}
		case 1: // across EOF, inside a page
			return "writer", Write(at*page+2*k, n*page)
		default:
			return "writer", Write(at*page, n*page)
		}
	}
	other := func() (string, Op) {
		at := r.Int64N(pages - 1)
		n := (1 + r.Int64N(pages-at)) * page
		switch r.IntN(10) {
		case 0, 1, 2, 3:
			return "truncate", Truncate(r.Int64N(2*pages)*2*k + r.Int64N(2)*page)
		case 4, 5:
			return "punch", Punch(at*page, n)
		case 6:
			return "fallocate", Fallocate(at*page, n)
		default:
			return "reader", Read(at*page, n)
		}
	}
	const tasks = 3
	more := -1 // the task with two operations
	if r.IntN(3) > 0 {
		more = r.IntN(tasks)
	}
	var words []string
	for i := range tasks {
		does := write
		if i == tasks-1 && more < 0 {
			does = other
		}
		what, o := does()
		t := Task{Name: fmt.Sprintf("%s %c", what, 'A'+i), Ops: []Op{o}}
		if i == more {
			_, o := other()
			t.Ops = append(t.Ops, o)
		}
		var ops []string
		for _, o := range t.Ops {
			ops = append(ops, o.String())
		}
		words = append(words, strings.Join(ops, ", then "))
		s.Tasks = append(s.Tasks, t)
	}
	r.Shuffle(tasks, func(i, j int) {
		s.Tasks[i], s.Tasks[j], words[i], words[j] = s.Tasks[j], s.Tasks[i], words[j], words[i]
	})
	s.About = fmt.Sprintf("drawn, a file of %s: %s", oracle.Offset(s.File.Size), strings.Join(words, "; "))
	return s
}
