// Package reproducer writes a folder with which somebody who has no btrlab leads a kernel through a
// schedule of package park. It has a program in C that is /init of the guest and makes the
// scenario's calls, a script in Python that parks its tasks in the order of the schedule, by qemu's
// gdb stub, the disk, a script that compiles and boots, and a README. The C and the Python do for
// one scenario what park.Agent and park.Machine do for all of them. Places keep the names that they
// have in other kernels, so a folder is for these as well.
//
// Model: none of the kernel's; this orders the kernel's own tasks.
package reproducer

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"btrlab/internal/judge/park"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

//go:embed files
var files embed.FS

// Subject is what a folder is about.
type Subject struct {
	Title string // one line
	Story string // what happens; "" leaves it out
	Rule  string // that is broken; "" leaves it out

	Scenario *scenario.Scenario
	Policy   *policy.Policy
	// Led is the schedule, as a kernel was led through it.
	Led *park.Replayed
}

// ErrFolder means that a folder has something in it already.
var ErrFolder = errors.New("bad folder, have one with files want a new or an empty one")

// Check reports whether a folder can take a reproducer of a scenario: it is new or empty, and the
// tasks of the scenario are such as Linux can be led through. An error is one line.
func Check(dir string, s *scenario.Scenario) error {
	if _, err := park.Calls(s); err != nil {
		return err
	}
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(list) > 0 {
		return fmt.Errorf("%s: %w", dir, ErrFolder)
	}
	return nil
}

// Write writes the folder, which Check does not refuse.
func Write(dir string, x *Subject) error {
	if err := Check(dir, x.Scenario); err != nil {
		return err
	}
	p, err := newPage(x)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		mode fs.FileMode
	}{{"README", 0o644}, {"repro.c", 0o644}, {"park.py", 0o644}, {"modules.py", 0o644}, {"run.sh", 0o755}} {
		text, err := p.fill(f.name)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), text, f.mode); err != nil {
			return err
		}
	}
	return writeDisk(filepath.Join(dir, "disk.img.gz"), x.Scenario)
}

// writeDisk writes the disk that the tasks begin with.
func writeDisk(path string, s *scenario.Scenario) (err error) {
	raw, err := os.CreateTemp("", "btrlab-disk")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close(), os.Remove(raw.Name())) }()
	if err := park.Prepare(raw.Name(), s); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := gzip.NewWriter(f)
	_, err = io.Copy(w, raw)
	return errors.Join(err, w.Close())
}

// page is what the files are filled with. Each of them takes the fields that it needs.
type page struct {
	*source
	*lead
	Title, Story, Rule               string
	Comment                          string // the title, in C
	Schedule                         string
	At                               int64 // where the scenario's file begins in the file, in bytes
	Operations, Origin, Model, Known string
	Breaks                           string // how a kernel breaks
	Package                          string // of Debian, with the kernel
}

func newPage(x *Subject) (*page, error) {
	s := x.Scenario
	plan, err := park.NewPlan(s, x.Policy, x.Led.Schedule, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	judged, err := scenario.Replay(s, x.Policy, x.Led.Schedule, false)
	if err != nil {
		return nil, err
	}
	v := violation(plan, judged)
	p := &page{source: newSource(s, plan), lead: newLead(s, plan, v), Title: paragraph("", "", x.Title), Comment: paragraph(" * ", " * ", inComment(x.Title)), Schedule: plan.Trace.Schedule, At: s.File.At,
		Operations: operations(s, plan), Breaks: breaks[v], Package: "linux-image-" + x.Led.Release}
	if x.Story != "" {
		p.Story = paragraph("", "", x.Story) + "\n"
	}
	if x.Rule != "" {
		p.Rule = paragraph("", "", "The rule: "+x.Rule+".") + "\n"
	}
	p.Origin = paragraph("", "", fmt.Sprintf("btrlab is a model of btrfs whose tasks take one step at a time. It ran scenario %s by schedule '%s', "+
		"under policy %s, which is an order of steps and locks. The tasks went on one after the other:", s.Name, p.Schedule, x.Policy.Name))
	p.Model = model(s, plan, judged)
	var known strings.Builder
	if err := x.Led.WriteText(&known, s.TaskNames(), columns); err != nil {
		return nil, err
	}
	p.Known = known.String()
	return p, nil
}

// columns is the width of the README.
const columns = 80

func paragraph(first, rest, text string) string {
	return strings.Join(prose.Hang(first, rest, text, columns), "\n") + "\n"
}

// inComment is a text that does not end a comment of C.
func inComment(text string) string { return strings.ReplaceAll(text, "*/", "* /") }

// fill is a file with its places filled in. Brackets are the marks of a place, since C, Python and
// a shell have use for braces.
func (p *page) fill(name string) ([]byte, error) {
	text, err := files.ReadFile("files/" + name)
	if err != nil {
		return nil, err
	}
	t, err := template.New(name).Delims("[[", "]]").Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, p)
	return b.Bytes(), err
}

// Names of what is violated, as park.py knows them.
const (
	sleeps    = "sleeps"   // a NOWAIT call
	deadlock  = "deadlock" // of tasks
	wrong     = "error"    // of a call
	wrongEnd  = "end"      // of all
	noneFound = ""
)

// breaks says how a kernel breaks, in words.
var breaks = map[string]string{
	sleeps:    "task N sleeps in ..., or comes to a function that may sleep",
	deadlock:  "task N sleeps in ..., of each task that waits for ever",
	wrong:     "call N: the error that it must not have",
	wrongEnd:  "the file ends as wrong as the model's",
	noneFound: "the end is another one than the model's, which breaks nothing",
}

// violation names what the engine violates: where its execution is judged, or cannot end.
func violation(plan *park.Plan, judged *scenario.Trace) string {
	switch plan.Trace.Kind {
	case explore.KindNowait:
		return sleeps
	case explore.KindDeadlock:
		return deadlock
	case explore.KindOracle:
		return wrong
	}
	if judged.Kind != explore.OK {
		return wrongEnd
	}
	return noneFound
}

// operations lists the calls: those before the tasks, and those of each task.
func operations(s *scenario.Scenario, plan *park.Plan) string {
	var b strings.Builder
	for i := range plan.Setup {
		fmt.Fprintf(&b, "  before:  %s\n", about(&plan.Setup[i]))
	}
	n := 0
	for i, t := range s.Tasks {
		fmt.Fprintf(&b, "  task %d, %s:\n", i, t.Name)
		for k, o := range t.Ops {
			n++
			fmt.Fprintf(&b, "    call %d: %s (%s)\n", n, o, traps[plan.Tasks[i][k].Verb])
		}
	}
	return b.String()
}

// traps are the system calls of verbs.
var traps = map[string]string{"write": "pwritev2", "read": "preadv2", "truncate": "ftruncate", "punch": "fallocate", "falloc": "fallocate", "fsync": "fsync",
	"start": "sync_file_range", "drop": "posix_fadvise", "map": "FS_IOC_FIEMAP", "sync": "syncfs"}

// model tells the engine's execution: its steps, and what it violates.
func model(s *scenario.Scenario, plan *park.Plan, judged *scenario.Trace) string {
	var b strings.Builder
	for i := range plan.Steps {
		x := &plan.Steps[i]
		b.WriteString(paragraph("  ", "    ", fmt.Sprintf("task %d (%s) %s", x.Task, s.Tasks[x.Task].Name, x.Where())))
	}
	b.WriteString("\n")
	if judged.Kind == explore.OK {
		b.WriteString("Nothing is wrong then.\n")
	} else {
		b.WriteString(paragraph("", "", "What is wrong then: "+judged.Violation.What+"."))
	}
	return b.String()
}
