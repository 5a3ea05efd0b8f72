package conform

import (
	"fmt"
	"io"
	"strings"

	"btrlab/internal/policy"
	"btrlab/internal/prose"
)

// Reached is how many of the operations reach an event or a step, on either side.
type Reached struct {
	Name   string `json:"name"`
	Part   string `json:"part"`
	Kernel int    `json:"kernel"`
	Engine int    `json:"engine"`
	// Shown says that the recorded kernel has such events at all.
	Shown bool `json:"shown"`
}

// Coverage is what the operations of the table reach, beside a recorded kernel: of the events that
// are compared, and of the engine's steps of a plan, which it alone has. That an event is reached
// says that it comes at least once, and not in which of its forms.
type Coverage struct {
	Kernel, Policy string
	Ops            int       `json:"operations"`
	Events         []Reached `json:"events"`
	Steps          []Reached `json:"steps"`
}

// Cover runs operations on the engine under a policy, and counts what they reach there and in all
// sequences of the recorded kernel.
func (r *Recorded) Cover(ops []*Op, pol string) (*Coverage, error) {
	c := &Coverage{Kernel: r.Release, Policy: pol, Ops: len(ops)}
	for i := range tracepoints {
		tp := &tracepoints[i]
		name := stepName(short(tp.name))
		c.Events = append(c.Events, Reached{Name: name, Part: tp.group.String(), Shown: !r.lacks[name] && (r.Functions || !tp.function())})
	}
	for _, kind := range policy.PlanSteps() {
		for _, s := range kind.Steps {
			c.Steps = append(c.Steps, Reached{Name: s, Part: kind.Name})
		}
	}
	for _, op := range ops {
		events, steps, err := coveredBy(op, pol)
		if err != nil {
			return nil, err
		}
		theirs := map[string]bool{}
		for l := range lanes {
			for _, seq := range r.sequences(op.Name, l) {
				for i := range seq {
					theirs[seq[i].Name] = true
				}
			}
		}
		for i := range c.Events {
			x := &c.Events[i]
			x.Kernel += count(theirs[x.Name])
			x.Engine += count(events[x.Name])
		}
		for i := range c.Steps {
			x := &c.Steps[i]
			x.Engine += count(steps[x.Part+" "+x.Name])
		}
	}
	return c, nil
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// coveredBy are the events that the engine makes in an operation, and its steps of a plan, with the
// name of the kind before each.
func coveredBy(op *Op, pol string) (events, steps map[string]bool, err error) {
	img, err := makeImage(op.size())
	if err != nil {
		return nil, nil, err
	}
	list, planned, err := runTold(img, op, pol)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: engine: %w", op.Name, err)
	}
	events, steps = map[string]bool{}, map[string]bool{}
	for i := range list {
		events[list[i].Name] = true
	}
	for _, s := range planned {
		steps[s] = true
	}
	return events, steps, nil
}

// WriteText prints how much is reached, and what is not.
func (c *Coverage) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d operations, Linux %s and policy %s\n", c.Ops, c.Kernel, c.Policy)
	fmt.Fprintf(&b, "\n%-17s %6s %7s %7s\n", "reached, of", "events", "kernel", "engine")
	line := func(part string, list []Reached) {
		var n, kernel, engine int
		for i := range list {
			if x := &list[i]; part == "" || x.Part == part {
				n, kernel, engine = n+1, kernel+count(x.Kernel > 0), engine+count(x.Engine > 0)
			}
		}
		if part == "" {
			part = "all"
		}
		fmt.Fprintf(&b, "%-17s %6d %7d %7d\n", part, n, kernel, engine)
	}
	for g := range Groups {
		line(g.String(), c.Events)
	}
	line("", c.Events)
	var unshown, unseen, unmade []string
	for i := range c.Events {
		switch x := &c.Events[i]; {
		case !x.Shown:
			unshown = append(unshown, x.Name)
		case x.Kernel == 0:
			unseen = append(unseen, x.Name)
		}
		if x := &c.Events[i]; x.Engine == 0 {
			unmade = append(unmade, x.Name)
		}
	}
	list := func(head string, names []string) {
		if len(names) > 0 {
			fmt.Fprintln(&b)
			for _, line := range prose.Hang("", "  ", head+": "+strings.Join(names, ", "), prose.Width) {
				fmt.Fprintln(&b, line)
			}
		}
	}
	list("This kernel does not show", unshown)
	list("No operation of the kernel reaches", unseen)
	list("No operation of the engine reaches", unmade)
	fmt.Fprintf(&b, "\n%-17s %6s %7s\n", "steps of a plan", "steps", "taken")
	var untaken []string
	for _, kind := range policy.PlanSteps() {
		taken := 0
		for i := range c.Steps {
			x := &c.Steps[i]
			switch {
			case x.Part == kind.Name && x.Engine > 0:
				taken++
			case x.Part == kind.Name:
				untaken = append(untaken, x.Part+" "+x.Name)
			}
		}
		fmt.Fprintf(&b, "%-17s %6d %7d\n", kind.Name, len(kind.Steps), taken)
	}
	list("No operation takes", untaken)
	fmt.Fprintf(&b, "\n%-35s %7s %7s\n", "operations that reach", "kernel", "engine")
	for i := range c.Events {
		x := &c.Events[i]
		kernel := "-"
		if x.Shown {
			kernel = fmt.Sprint(x.Kernel)
		}
		fmt.Fprintf(&b, "%-35s %7s %7d\n", x.Name, kernel, x.Engine)
	}
	for i := range c.Steps {
		x := &c.Steps[i]
		fmt.Fprintf(&b, "%-35s %7s %7d\n", x.Part+" "+x.Name, "", x.Engine)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
