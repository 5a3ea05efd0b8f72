package course

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"btrlab/internal/prose"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/sandbox"
)

// Measured are the rows with times.
func (r *Report) Measured() []grade.Row {
	return slices.DeleteFunc(slices.Clone(r.Rows), func(x grade.Row) bool { return len(x.Times) == 0 })
}

// WriteMarkdown writes the report as a page: what was proved, what was measured, the student's own
// text, and the rubric with what is for the teacher. dir has the student's files, and profile is
// where the profile of waits is, empty for none.
func (l *Lab) WriteMarkdown(w io.Writer, r *Report, dir, profile string) error {
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
	if n := r.halvedNote(); n != "" {
		p("\n%s", n)
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
	if l.Essay != nil {
		p("## The student's text\n")
		text, err := sandbox.Read(filepath.Join(dir, l.Essay.File))
		have := judges.Parts(string(text))
		if err != nil {
			p("There is no %s.\n", l.Essay.File)
		}
		for _, name := range l.Essay.Sections {
			p("### %s\n\n%s\n", name, cmp.Or(prose.EscapeLines(plain(have[name])), "(empty)"))
		}
	}
	p("## Rubric\n\n| what | points | graded | by the teacher |\n|---|---|---|---|")
	for _, x := range r.Rows {
		teacher := ""
		if x.Name == judges.EssayRow {
			teacher = fmt.Sprintf("_____ of %g", x.Teacher)
		}
		p("| %s: %s | %g | %g | %s |", x.Name, cell(x.Asks), x.Max+x.Teacher, x.Score, teacher)
	}
	p("| sum | %g | %g | |", r.Max+r.Teacher, r.Score)
	_, err := io.WriteString(w, b.String())
	return err
}

// measuredPage is the part of the page about what was measured: times, ratios and waits.
func (r *Report) measuredPage(p func(format string, a ...any), rows []grade.Row, profile string) {
	p("## What was measured\n\nVirtual time, the same on every machine. Times as fast as policy `%s`, and milliseconds.\n", grade.Baseline)
	for _, x := range rows {
		p("### %s\n\n%s. %s.\n\n| policy | times %s | ms |\n|---|---|---|", x.Name, upper(x.Asks), upper(plain(x.Result)), grade.Baseline)
		names, ratios := x.Ratios()
		for i := range names {
			name := names[i]
			if name == grade.Yours {
				name = "**" + name + "**"
			}
			p("| %s | %.2f | %.2f |", name, ratios[i], float64(x.Times[i].Nanos)/1e6)
		}
		p("")
		for _, list := range []struct {
			head  string
			waits []grade.Wait
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
	return strings.ReplaceAll(plain(s), "|", "\\|")
}

// tag is the beginning of HTML.
var tag = regexp.MustCompile("<([A-Za-z/!?])")

// plain is text of a submission in which nothing is HTML: a page of Markdown may have some.
func plain(s string) string { return tag.ReplaceAllString(s, "&lt;$1") }

// upper is s with a capital.
func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
