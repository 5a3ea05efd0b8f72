package conform

import (
	"bufio"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// A recorded run of the kernel stands in a text: "# Linux 6.18.44", and for each operation "==
// NAME" and a line for each step, "t" of the task or "e" of others, name and what it says. Where
// the kernel does not make the same steps each time, "== NAME LANE 2" and so on are the other
// sequences of a lane that were seen.
//
//go:embed recorded/6.18.txt recorded/6.18-functions.txt
var recordedText embed.FS

// Recorded is the kernel's side of runs that were made before: it can be compared anywhere.
type Recorded struct {
	Release string
	// Functions says that the kernel showed the steps of functions as well as those of tracepoints.
	Functions bool

	steps    map[place][]Event
	expected expectations // the differences from the engine
}

// OpenRecorded gives the run that is in the program, with the steps of functions.
func OpenRecorded() *Recorded { return recordings()[1] }

// recordedAs gives the run of a kernel that shows the steps of functions, or does not.
func recordedAs(functions bool) *Recorded {
	if functions {
		return recordings()[1]
	}
	return recordings()[0]
}

// texts are the names of the two recorded runs' texts, and of those of the expected differences.
var texts = [2]string{KnownRelease + ".txt", KnownRelease + "-functions.txt"}

var recordings = sync.OnceValue(func() (list [2]*Recorded) {
	for i, name := range texts {
		text, err := recordedText.ReadFile("recorded/" + name)
		if err == nil {
			list[i] = parseRecorded(string(text))
			list[i].Functions = i == 1
			if text, err = expectedText.ReadFile("expected/" + name); err == nil {
				list[i].expected, err = parseExpected(string(text))
			}
		}
		if err != nil {
			panic("conform: " + err.Error())
		}
	}
	return list
})

func parseRecorded(text string) *Recorded {
	r := &Recorded{steps: map[place][]Event{}}
	var at place
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		first, rest, _ := strings.Cut(lines.Text(), " ")
		switch first {
		case "#":
			r.Release = strings.TrimPrefix(rest, "Linux ")
		case "==":
			var err error
			if at, err = parsePlace(rest); err != nil {
				panic("conform: recorded run: " + err.Error())
			}
			r.steps[at] = nil
			if at.n == 1 {
				r.steps[place{at.op, Elsewhere, 1}] = nil
			}
		case "t", "e":
			p := place{at.op, Caller, at.n}
			if first == "e" {
				p.lane = Elsewhere
			}
			e, err := parseStep(rest)
			if err != nil {
				panic("conform: recorded run: " + err.Error())
			}
			e.Lane = p.lane
			r.steps[p] = append(r.steps[p], e)
		}
	}
	return r
}

// parseStep reads what Event.String gives.
func parseStep(s string) (Event, error) {
	name, about, _ := strings.Cut(s, " ")
	tp := byStep(name)
	if tp == nil {
		return Event{}, fmt.Errorf("step %q has an unknown name", s)
	}
	return Event{Group: tp.group, Name: name, About: about}, nil
}

// sequences are what the kernel was seen to do in a lane of an operation; none if the operation was
// not recorded.
func (r *Recorded) sequences(op string, l Lane) (list [][]Event) {
	for n := 1; ; n++ {
		s, ok := r.steps[place{op, l, n}]
		if !ok {
			return list
		}
		list = append(list, s)
	}
}

// Compare runs an operation on the engine; the kernel's side is the recorded one, its first
// sequence where there are several.
func (r *Recorded) Compare(op *Op) (*Result, error) {
	var theirs []Event
	for l := range lanes {
		all := r.sequences(op.Name, l)
		if len(all) == 0 {
			return nil, fmt.Errorf("%s is not in the recorded run of Linux %s", op.Name, r.Release)
		}
		theirs = append(theirs, all[0]...)
	}
	img, err := makeImage(op.size())
	if err != nil {
		return nil, err
	}
	ours, err := runEngine(img, op)
	if err != nil {
		return nil, fmt.Errorf("%s: engine: %w", op.Name, err)
	}
	return r.compare(op, theirs, ours)
}

// Recorder collects the kernel's sides of several runs. The zero Recorder is empty.
type Recorder struct {
	ops  []string
	seen map[place]*seen // by operation and lane; n is 0
}

// seen is the sequences of a lane, in the order in which they were seen first.
type seen struct {
	sequences [][]Event
	times     []int
}

// Add notes the kernel's side of a result.
func (r *Recorder) Add(x *Result) {
	if r.seen == nil {
		r.seen = map[place]*seen{}
	}
	if !slices.Contains(r.ops, x.Op.Name) {
		r.ops = append(r.ops, x.Op.Name)
	}
	for l := range lanes {
		p := place{x.Op.Name, l, 0}
		s := r.seen[p]
		if s == nil {
			s = &seen{}
			r.seen[p] = s
		}
		var steps []Event
		for _, row := range x.Rows[l] {
			if row.Kernel != nil {
				steps = append(steps, *row.Kernel)
			}
		}
		i := slices.IndexFunc(s.sequences, func(other []Event) bool { return slices.Equal(other, steps) })
		if i < 0 {
			i = len(s.sequences)
			s.sequences, s.times = append(s.sequences, steps), append(s.times, 0)
		}
		s.times[i]++
	}
}

// Write writes what was noted as the text of a recorded run; the sequence that was seen most comes
// first. The release is that of uname.
func (r *Recorder) Write(w io.Writer, release string) error {
	var b strings.Builder
	if i := strings.IndexAny(release, "-+"); i >= 0 {
		release = release[:i]
	}
	fmt.Fprintf(&b, "# Linux %s\n", release)
	sequence := func(l Lane, steps []Event) {
		for _, e := range steps {
			fmt.Fprintf(&b, "%.1s %s\n", l, e)
		}
	}
	for _, op := range r.ops {
		fmt.Fprintf(&b, "== %s\n", op)
		var rest [lanes][][]Event
		for l := range lanes {
			s := r.seen[place{op, l, 0}]
			order := make([]int, len(s.sequences))
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int { return s.times[b] - s.times[a] })
			for _, i := range order {
				rest[l] = append(rest[l], s.sequences[i])
			}
			sequence(l, rest[l][0])
		}
		for l := range lanes {
			for i, steps := range rest[l][1:] {
				fmt.Fprintf(&b, "== %s\n", place{op, l, i + 2})
				sequence(l, steps)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
