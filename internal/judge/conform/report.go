package conform

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"btrlab/internal/prose"
)

// Report is a run of several operations.
type Report struct {
	Kernel  string   // uname -r
	Policy  string   // of the engine
	Missing []string // tracepoints of the table that the kernel does not have
	Refused string   // why the kernel does not show the steps of functions; "" if it does
	Results []*Result
}

// Policy is the engine's policy unless another one is asked for.
const Policy = "modern"

// Totals is the figures of a report.
type Totals struct {
	Ops       int `json:"operations"`
	Agree     int `json:"agree"`     // no step differs
	Explained int `json:"explained"` // the differences are the expected ones, row for row
	Kernel    int `json:"kernel_steps"`
	Engine    int `json:"engine_steps"`
	Same      int `json:"same_steps"`
	// Cells counts, by group, the operations that have steps of it, and those of them that agree.
	Cells    [Groups]int `json:"-"`
	Agreeing [Groups]int `json:"-"`
	// Named counts the rows of each difference that has a name; Open those without one; Gone those
	// that were expected and are not there.
	Named map[string]int `json:"named"`
	Open  int            `json:"open"`
	Gone  int            `json:"gone"`
	// Again counts the operations that the kernel did more than once: see Result.
	Again int `json:"again"`
}

// Totals adds the results up.
func (r *Report) Totals() Totals {
	t := Totals{Ops: len(r.Results), Named: map[string]int{}}
	for _, x := range r.Results {
		t.Kernel, t.Engine, t.Same = t.Kernel+x.Kernel, t.Engine+x.Engine, t.Same+x.Same
		if x.AgreesAll() {
			t.Agree++
		}
		if x.Explained() {
			t.Explained++
		}
		for g := range Groups {
			if x.Has[g] {
				t.Cells[g]++
				if x.Agrees(g) {
					t.Agreeing[g]++
				}
			}
		}
		if x.Again > 0 {
			t.Again++
		}
		for l := range lanes {
			t.Gone += len(x.Gone[l])
			for i := range x.Rows[l] {
				switch row := &x.Rows[l][i]; {
				case row.Mark == Same:
				case row.Known == "":
					t.Open++
				default:
					t.Named[row.Known]++
				}
			}
		}
	}
	return t
}

// cells is the number of pairs of an operation and a group, and of those that agree.
func (t *Totals) cells() (all, agree int) {
	for g := range Groups {
		all, agree = all+t.Cells[g], agree+t.Agreeing[g]
	}
	return all, agree
}

func percent(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

// WriteText prints the table of operations, the groups, and the differences by name.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	t := r.Totals()
	fmt.Fprintf(&b, "Linux %s and policy %s\n", r.Kernel, r.Policy)
	r.writeCompared(&b)
	b.WriteString("\n")
	fmt.Fprintf(&b, "%-20s%6s%7s%5s", "steps of", "kernel", "engine", "same")
	for g := range Groups {
		fmt.Fprintf(&b, " %s", g.abbreviation())
	}
	for _, x := range r.Results {
		fmt.Fprintf(&b, "\n%-20s%6d%7d%5d%s", x.Op.Name, x.Kernel, x.Engine, x.Same, x.signs())
	}
	fmt.Fprintf(&b, "\n\n= agrees  x differs  ? differs, and no name says why\n\n%-22s %10s %6s\n", "part", "operations", "agree")
	for g := range Groups {
		fmt.Fprintf(&b, "%s  %-17s %10d %6d\n", g.abbreviation(), g, t.Cells[g], t.Agreeing[g])
	}
	all, agree := t.cells()
	fmt.Fprintf(&b, "\nOf %d steps of the kernel %d (%s) have the same step here, at the same place,\n", t.Kernel, t.Same, percent(t.Same, t.Kernel))
	both := t.Kernel + t.Engine - t.Same
	fmt.Fprintf(&b, "which is %s of the %d steps that either side makes;\n", percent(t.Same, both), both)
	fmt.Fprintf(&b, "of %d parts of operations %d (%s) agree in every step, and of %d operations %d.\n", all, agree, percent(agree, all), t.Ops, t.Agree)
	fmt.Fprintf(&b, "In %d operations (%s) the differences are those expected, row for row;\n", t.Explained, percent(t.Explained, t.Ops))
	fmt.Fprintf(&b, "%d rows are not expected, and %d expected ones are gone.\n", t.Open, t.Gone)
	if t.Again > 0 {
		fmt.Fprintf(&b, "The kernel did %d operations more than once: at first its steps were those of no recorded run.\n", t.Again)
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(&b, "This kernel lacks tracepoints: %s\n", strings.Join(r.Missing, ", "))
	}
	if len(t.Named) > 0 {
		fmt.Fprintf(&b, "\nDifferences, as named for Linux %s:\n", recordedLike(r.Kernel, r.Refused == "").Version())
		writeKnown(&b, t.Named)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeCompared says which steps the kernel shows.
func (r *Report) writeCompared(b *strings.Builder) {
	s := "Compared: the steps of tracepoints, and of functions: i_rwsem, i_size, waits for direct I/O and ordered extents, folios, the snapshot lock."
	if r.Refused != "" {
		s = "Compared: the steps of tracepoints alone. Those of functions (i_rwsem, i_size, waits for direct I/O and ordered extents, folios, the snapshot lock) " +
			"this kernel does not show: " + r.Refused + ". --recorded has them."
	}
	for _, line := range prose.Hang("", "", s, prose.Width) {
		fmt.Fprintln(b, line)
	}
}

// writeKnown lists the differences that have rows, in the order of the table.
func writeKnown(b *strings.Builder, rows map[string]int) {
	list := known()
	for i := range list {
		if k := &list[i]; rows[k.Name] > 0 {
			fmt.Fprintf(b, "  %-26s %4d rows\n", k.Name, rows[k.Name])
			for _, line := range prose.Hang("      ", "      ", k.Why, prose.Width) {
				fmt.Fprintln(b, line)
			}
		}
	}
}

// signs is the columns of the groups.
func (r *Result) signs() string {
	var b strings.Builder
	for g := range Groups {
		sign := " "
		switch {
		case r.Open[g] > 0:
			sign = "?"
		case r.Differ[g] > 0:
			sign = "x"
		case r.Has[g]:
			sign = "="
		}
		fmt.Fprintf(&b, "  %s ", sign)
	}
	return strings.TrimRight(b.String(), " ")
}

// parts names the groups that differ, with a star for those with an open difference.
func (r *Result) parts() string {
	var s []string
	for g := range Groups {
		switch {
		case r.Open[g] > 0:
			s = append(s, g.String()+"*")
		case r.Differ[g] > 0:
			s = append(s, g.String())
		}
	}
	return strings.Join(s, ", ")
}

// WriteText prints the two sequences of one operation side by side.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", r.Op.Name, r.Op.About)
	if s := steps(r.Op.Setup); len(s) > 0 {
		fmt.Fprintf(&b, "  before: %s\n", strings.Join(s, "; "))
	}
	fmt.Fprintf(&b, "  done:   %s\n", strings.Join(steps(r.Op.Do), "; "))
	left, right := "kernel", "engine"
	if r.sides != [2]string{} {
		left, right = "Linux "+r.sides[0], "Linux "+r.sides[1]
	}
	wide := len(left)
	for l := range lanes {
		for _, row := range r.Rows[l] {
			if row.Kernel != nil {
				wide = max(wide, len(row.Kernel.String()))
			}
		}
	}
	names := map[string]int{}
	for l := range lanes {
		if len(r.Rows[l]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n  %-*s  %-8s %s\n", map[Lane]string{Caller: "on the task", Elsewhere: "elsewhere"}[l], wide, left, "", right)
		for _, row := range r.Rows[l] {
			unexplained := ""
			if r.sides == [2]string{} {
				unexplained = open(&row)
			}
			fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("  %-*s  %-8s %s", wide, text(row.Kernel), row.Mark, text(row.Engine))+unexplained, " "))
			if row.Known != "" {
				names[row.Known]++
			}
		}
	}
	r.writeGone(&b)
	if r.sides != [2]string{} {
		fmt.Fprintf(&b, "\n%d of %d steps of %s are the same in %s", r.Same, r.Kernel, left, right)
	} else {
		fmt.Fprintf(&b, "\n%d of %d steps of the kernel are the same here", r.Same, r.Kernel)
	}
	if len(names) > 0 {
		b.WriteString("; the differences:\n")
		writeKnown(&b, names)
	} else {
		b.WriteString(".\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeGone lists the expected differences that are not there.
func (r *Result) writeGone(b *strings.Builder) {
	for l := range lanes {
		for i := range r.Gone[l] {
			row := &r.Gone[l][i]
			fmt.Fprintf(b, "%s", strings.TrimRight(fmt.Sprintf("\nexpected and gone, %s: %s %s: %s", l, row.Known, row.Mark, text(row.Kernel)), " "))
			if row.Engine != nil {
				fmt.Fprintf(b, " | %s", text(row.Engine))
			}
		}
		if len(r.Gone[l]) > 0 {
			b.WriteString("\n")
		}
	}
}

func text(e *Event) string {
	if e == nil {
		return ""
	}
	return e.String()
}

func open(r *Row) string {
	if r.Mark != Same && r.Known == "" {
		return "  (open)"
	}
	return ""
}

// JSONRow is a row in the output of btrlab conform --json.
type JSONRow struct {
	Lane   string `json:"lane"`
	Kernel string `json:"kernel,omitempty"`
	Engine string `json:"engine,omitempty"`
	Mark   string `json:"mark,omitempty"`
	Known  string `json:"known,omitempty"`
}

// JSONResult is one operation there.
type JSONResult struct {
	Name   string    `json:"name"`
	About  string    `json:"about"`
	Kernel int       `json:"kernel_steps"`
	Engine int       `json:"engine_steps"`
	Same   int       `json:"same_steps"`
	Differ []string  `json:"parts_that_differ,omitempty"`
	Rows   []JSONRow `json:"rows"`
	Gone   []JSONRow `json:"gone,omitempty"` // expected differences that are not there
}

// JSONPart is a group there: how many operations have steps of it, and in how many all agree.
type JSONPart struct {
	Name       string `json:"name"`
	Operations int    `json:"operations"`
	Agree      int    `json:"agree"`
}

// JSONReport is that output.
type JSONReport struct {
	Kernel  string   `json:"kernel"`
	Policy  string   `json:"policy"`
	Missing []string `json:"missing_tracepoints,omitempty"`
	// Refused is why the steps of functions are not compared.
	Refused    string            `json:"functions_refused,omitempty"`
	Operations []JSONResult      `json:"operations"`
	Totals     Totals            `json:"totals"`
	Parts      []JSONPart        `json:"parts"`
	Reasons    map[string]string `json:"reasons"` // of the differences that have a name
	LeftOut    map[string]string `json:"left_out"`
}

func jsonRow(l Lane, r *Row) JSONRow {
	return JSONRow{l.String(), text(r.Kernel), text(r.Engine), r.Mark.String(), r.Known}
}

// JSON is the report with plain names.
func (r *Report) JSON() JSONReport {
	j := JSONReport{Kernel: r.Kernel, Policy: r.Policy, Missing: r.Missing, Refused: r.Refused, Totals: r.Totals(), Reasons: map[string]string{}, LeftOut: map[string]string{}}
	for _, x := range r.Results {
		o := JSONResult{Name: x.Op.Name, About: x.Op.About, Kernel: x.Kernel, Engine: x.Engine, Same: x.Same, Rows: []JSONRow{}}
		for g := range Groups {
			if x.Differ[g] > 0 {
				o.Differ = append(o.Differ, g.String())
			}
		}
		sort.Strings(o.Differ)
		for l := range lanes {
			for _, row := range x.Rows[l] {
				o.Rows = append(o.Rows, jsonRow(l, &row))
			}
			for i := range x.Gone[l] {
				o.Gone = append(o.Gone, jsonRow(l, &x.Gone[l][i]))
			}
		}
		j.Operations = append(j.Operations, o)
	}
	for g := range Groups {
		j.Parts = append(j.Parts, JSONPart{g.String(), j.Totals.Cells[g], j.Totals.Agreeing[g]})
	}
	for _, k := range known() {
		j.Reasons[k.Name] = k.Why
	}
	for _, l := range leftOut {
		j.LeftOut[l.Name] = l.Why
	}
	return j
}
