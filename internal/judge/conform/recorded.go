package conform

import (
	"bufio"
	_ "embed" // the recorded traces
	"fmt"
	"io"
	"strings"
)

// A recorded run of the kernel stands in a text: "# Linux 6.18.44", and for each operation
// "== NAME" and a line for each step, "t" of the task or "e" of others, name and what it says.
//
//go:embed recorded/6.18.txt
var recordedText string

// Recorded is the kernel's side of a run that was made before: it can be compared anywhere.
type Recorded struct {
	Release string
	steps   map[string][]Event
}

// OpenRecorded gives the run that is in the program.
func OpenRecorded() *Recorded { return parseRecorded(recordedText) }

func parseRecorded(text string) *Recorded {
	r := &Recorded{steps: map[string][]Event{}}
	op := ""
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		first, rest, _ := strings.Cut(lines.Text(), " ")
		switch first {
		case "#":
			r.Release = strings.TrimPrefix(rest, "Linux ")
		case "==":
			op = rest
			r.steps[op] = nil
		case "t", "e":
			name, about, _ := strings.Cut(rest, " ")
			tp := byName[name]
			if tp == nil {
				tp = byName["btrfs_"+name]
			}
			if tp == nil {
				panic(fmt.Sprintf("conform: recorded step %q has an unknown name", rest))
			}
			lane := Caller
			if first == "e" {
				lane = Elsewhere
			}
			r.steps[op] = append(r.steps[op], Event{lane, tp.group, name, about})
		}
	}
	return r
}

// Compare runs an operation on the engine; the kernel's side is the recorded one.
func (r *Recorded) Compare(op *Op) (*Result, error) {
	theirs, ok := r.steps[op.Name]
	if !ok {
		return nil, fmt.Errorf("%s is not in the recorded run of Linux %s", op.Name, r.Release)
	}
	img, err := makeImage(op.size())
	if err != nil {
		return nil, err
	}
	ours, err := runEngine(img, op)
	if err != nil {
		return nil, fmt.Errorf("%s: engine: %w", op.Name, err)
	}
	return compare(op, theirs, ours), nil
}

// Record writes the kernel's side of a report as the text of a recorded run.
func (r *Report) Record(w io.Writer) error {
	var b strings.Builder
	release, _, _ := strings.Cut(r.Kernel, "-")
	fmt.Fprintf(&b, "# Linux %s\n", release)
	for _, x := range r.Results {
		fmt.Fprintf(&b, "== %s\n", x.Op.Name)
		for l := range lanes {
			for _, row := range x.Rows[l] {
				if row.Kernel != nil {
					fmt.Fprintf(&b, "%.1s %s\n", l, row.Kernel)
				}
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
