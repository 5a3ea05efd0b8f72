package grade

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// Measured are the rows with times.
func (r *Report) Measured() []Row {
	return slices.DeleteFunc(slices.Clone(r.Rows), func(x Row) bool { return len(x.Times) == 0 })
}

// Ratios are how many times as fast as policy locked each policy is in a row with times, the
// student's first where it was measured.
func (x *Row) Ratios() (policies []string, ratios []float64) {
	base := 0.0
	for _, m := range x.Times {
		if m.Policy == baseline {
			base = float64(m.Nanos)
		}
	}
	for _, m := range x.Times {
		policies, ratios = append(policies, m.Policy), append(ratios, base/float64(m.Nanos))
	}
	return policies, ratios
}

// WriteMarkdown writes the report as a page: what was proved, what was measured, the student's own
// text, and the rubric with what is for the teacher. dir has the student's files, and profile is
// where the profile of waits is, empty for none.
func (l *Course) WriteMarkdown(w io.Writer, r *Report, dir, profile string) error {
	var b strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	p("# Report of lab %02d: %s\n", r.Lab, r.Title)
	p("Folder `%s`: %g of %g points before the teacher has read the text.\n", r.Dir, r.Score, r.Max+r.Teacher)
	p("## What was proved\n")
	p("| row | points | result |\n|---|---|---|")
	for _, x := range r.Rows {
		if len(x.Times) == 0 {
			p("| %s | %g of %g | %s |", x.Name, x.Score, x.Max, cell(x.Result))
		}
	}
	p("\nExhausted means every schedule that switches tasks at the scenario's locks; anything else names its bound and is no proof.\n")
	for _, x := range r.Rows {
		if len(x.Parts) > 0 {
			p("### %s\n\n%s.\n\n| scenario | kept | search |\n|---|---|---|", x.Name, upper(x.Asks))
			for _, k := range x.Parts {
				p("| %s | %s | %s |", k.Name, map[bool]string{true: "yes", false: "**no**"}[k.Pass], cell(k.Result))
			}
			if x.Replay != "" {
				p("\n`%s`", x.Replay)
			}
			p("")
		}
	}
	if m := r.Measured(); len(m) > 0 {
		r.measuredPage(p, m, profile)
	}
	if l.essay != nil {
		p("## The student's text\n")
		text, err := readHanded(filepath.Join(dir, l.essay.file))
		have := sections(string(text))
		if err != nil {
			p("There is no %s.\n", l.essay.file)
		}
		for _, name := range l.essay.sections {
			p("### %s\n\n%s\n", name, cmp.Or(have[name], "(empty)"))
		}
	}
	p("## Rubric\n\n| what | points | graded | by the teacher |\n|---|---|---|---|")
	for _, x := range r.Rows {
		teacher := ""
		if x.Name == essayRow {
			teacher = fmt.Sprintf("_____ of %g", x.Teacher)
		}
		p("| %s: %s | %g | %g | %s |", x.Name, cell(x.Asks), x.Max+x.Teacher, x.Score, teacher)
	}
	p("| sum | %g | %g | |", r.Max+r.Teacher, r.Score)
	_, err := io.WriteString(w, b.String())
	return err
}

// measuredPage is the part of the page about what was measured: times, ratios and waits.
func (r *Report) measuredPage(p func(format string, a ...any), rows []Row, profile string) {
	p("## What was measured\n\nVirtual time, the same on every machine. Times as fast as policy `%s`, and milliseconds.\n", baseline)
	for _, x := range rows {
		p("### %s\n\n%s. %s.\n\n| policy | times %s | ms |\n|---|---|---|", x.Name, upper(x.Asks), upper(x.Result), baseline)
		names, ratios := x.Ratios()
		for i := range names {
			name := names[i]
			if name == Yours {
				name = "**" + name + "**"
			}
			p("| %s | %.2f | %.2f |", name, ratios[i], float64(x.Times[i].Nanos)/1e6)
		}
		p("")
		for _, list := range []struct {
			head  string
			waits []Wait
		}{{"What its tasks waited for:\n\n| lock or event | waits | ms |", x.Locks}, {"What they held:\n\n| lock | times | ms |", x.Holds}} {
			if len(list.waits) == 0 {
				continue
			}
			p("%s\n|---|---|---|", list.head)
			for _, k := range list.waits {
				p("| %s | %d | %.3f |", k.Lock, k.Count, float64(k.Nanos)/1e6)
			}
			p("")
		}
	}
	if profile != "" {
		p("The waits with their stacks: `go tool pprof -top -tagroot=lock %s`\n", profile)
	}
}

// cell is text in a cell of a table: one line.
func cell(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.ReplaceAll(s, "|", "\\|")
}

// upper is s with a capital.
func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
