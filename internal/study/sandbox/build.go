// Package sandbox runs foreign Go. It checks the code by rules (check.go, typed.go), copies it into
// a folder of the module that the go tool skips, writes a main for it, builds both (build.go) and
// runs the program, which judges the code row by row. The program ends itself when the code takes
// too much processor time or memory (watch.go); then another process goes on at the next row
// (ledger.go). Which rows there are, and what they ask, is the caller's.
//
// Invariants:
//   - what is wrong with the code is in the rows, and never an error;
//   - the same files give the same rows on every machine, but for the line in which code was that
//     did not end.
package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"btrlab/internal/module"
	"btrlab/internal/study/grade"
)

// Code is Go of students: what it may be, and the program that judges it.
type Code struct {
	Rules
	// Main is what main exits with, with student for the package of the code: a call of Main. Value
	// is the part of it that holds the functions of the code. Its other packages are Imports.
	Main, Value string
	Imports     []string
}

// Needs are the packages of the module that the program is built of.
func (c *Code) Needs() []string {
	var needs []string
	for _, p := range slices.Concat(c.Imports, c.Allowed) {
		if strings.HasPrefix(p, module.Path+"/") {
			needs = append(needs, p)
		}
	}
	slices.Sort(needs)
	return slices.Compact(needs)
}

// studentPath is the package of the files that are judged in a folder of labs/_grade.
func studentPath(folder string) string { return module.Path + "/labs/_grade/" + folder + "/student" }

const mainText = `package main

import (
	"os"

	student %q
%s)

func main() { os.Exit(%s) }
`

// program is the text of the program that exits with main about the student's package.
func (c *Code) program(student, main string) []byte {
	var imports strings.Builder
	for _, p := range c.Imports {
		fmt.Fprintf(&imports, "\t%q\n", p)
	}
	return fmt.Appendf(nil, mainText, student, imports.String(), main)
}

// Job is Code with the rows that are judged about it.
type Job struct {
	*Code
	Name string      // of the folder in labs/_grade, before a number
	Rows []grade.Row // with Name, Asks and Max, in their order
	Max  float64     // of all
	// Whole says that code that does not come to an end is refused, with no row for what it did.
	Whole bool
	// Finish makes the rows of the report of those that were judged.
	Finish func(judged []grade.Row) []grade.Row
}

// Judge checks, builds and runs the files of a package. The error is about the tools: what is wrong
// with the code is in the rows.
func (j *Job) Judge(ctx context.Context, root string, paths []string, o Options) ([]grade.Row, error) {
	begun := time.Now()
	files, err := ReadAll(paths)
	if err != nil {
		return Unread(err, j.Max)
	}
	within, cancel := o.within(ctx, begun)
	defer cancel()
	code, err := Check(within, root, files, j.Rules)
	switch {
	case err != nil && ctx.Err() == nil && within.Err() != nil:
		return grade.Refused("check", j.Max, []string{o.late()}), nil
	case err != nil:
		return nil, err
	case len(code.Bad) > 0:
		return grade.Refused("check", j.Max, code.Bad), nil
	}
	if rows := o.Explored.find(code.canon); rows != nil {
		return rows, nil
	}
	work, err := j.stage(root, files, j.Main)
	if work != "" {
		defer os.RemoveAll(work)
	}
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(work, "grader")
	if wrong, err := j.build(within, root, filepath.Base(work), bin); err != nil || wrong != nil {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case within.Err() != nil:
			return grade.Refused("build", j.Max, []string{o.late()}), nil
		case err != nil:
			return nil, fmt.Errorf("build the grader: %w", err)
		}
		return grade.Refused("build", j.Max, wrong), nil
	}
	if code.untyped != "" { // the compiler and the type checker have seen different files
		return grade.Refused("check", j.Max, []string{"cannot be checked: " + code.untyped}), nil
	}
	report := filepath.Join(work, "report.json")
	rows, late, err := j.attempts(ctx, work, bin, report, o, begun)
	if err != nil {
		return nil, err
	}
	if o.Profile != "" {
		if p, err := os.ReadFile(report + profileSuffix); err == nil {
			if err := os.WriteFile(o.Profile, p, 0o644); err != nil {
				return nil, err
			}
		}
	}
	if !late {
		o.Explored.keep(code.canon, o.Name, rows)
	}
	return rows, nil
}

// build builds the program in folder name of labs/_grade. wrong is what the compiler says of the
// student's files.
func (j *Job) build(ctx context.Context, root, name, bin string, flags ...string) (wrong []string, err error) {
	// The student's package is not optimised: an optimised loop has instructions without a line.
	out, err := compile(ctx, root, name, bin, append(flags, "-gcflags="+studentPath(name)+"=-N -l")...)
	if out == "" {
		return nil, err
	}
	return j.buildErrors(out, "labs/_grade/"+name+"/"), nil
}

// compile builds the program in folder name of labs/_grade. out is what the compiler says of the
// files there, empty if it says nothing.
func compile(ctx context.Context, root, name, bin string, flags ...string) (out string, err error) {
	args := append([]string{"build"}, append(flags, "-o", bin, "./labs/_grade/"+name)...)
	c, err := goTool(ctx, root, args...)
	if err != nil {
		return "", err
	}
	b, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case !errors.As(err, &exit):
		return "", err
	case !strings.Contains(string(b), "labs/_grade/"+name+"/"): // not the student's
		return "", fmt.Errorf("%w\n%s", err, b)
	}
	if why := compilerEnds(string(b)); why != "" {
		return why, nil
	}
	return string(b), nil
}

// BuildDebug checks the files of a package and builds a program for a debugger, at bin, that exits
// with main in the place of Main and names the files by their own paths. wrong says what is wrong
// with them, a line each.
func (j *Job) BuildDebug(ctx context.Context, root string, paths []string, main, bin string) (wrong []string, err error) {
	files, err := ReadAll(paths)
	if err != nil {
		return nil, err
	}
	code, err := Check(ctx, root, files, j.Rules)
	if err != nil || len(code.Bad) > 0 {
		return code.Bad, err
	}
	for i := range files {
		path, err := filepath.Abs(files[i].Path)
		if err != nil {
			return nil, err
		}
		files[i].Data = append(fmt.Appendf(nil, "//line %s:1\n", path), files[i].Data...)
	}
	work, err := j.stage(root, files, main)
	if work != "" {
		defer os.RemoveAll(work)
	}
	if err != nil {
		return nil, err
	}
	// what stands between the student's frames and the debugger's stop is not optimised, either
	return j.build(ctx, root, filepath.Base(work), bin, "-gcflags="+KitPath+"=-N -l", "-gcflags="+module.Path+"/internal/study/timeline=-N -l")
}

// stage makes a folder of the module with the student's files and a program that exits with main
// about them. The caller removes it, also after an error.
func (j *Job) stage(root string, files []File, main string) (work string, err error) {
	if work, err = newFolder(root, j.Name); err != nil {
		return work, err
	}
	if err := writePackage(filepath.Join(work, "student"), files); err != nil {
		return work, err
	}
	return work, os.WriteFile(filepath.Join(work, "main.go"), j.program(studentPath(filepath.Base(work)), main), 0o644)
}

// newFolder makes a folder for a program in labs/_grade, which the go tool skips.
func newFolder(root, name string) (work string, err error) {
	work = filepath.Join(root, "labs", "_grade")
	if err = os.MkdirAll(work, 0o755); err == nil {
		sweep(work)
		work, err = os.MkdirTemp(work, name+"-")
	}
	if err != nil {
		return "", fmt.Errorf("your code is built beside the labs, want a clone that can be written: %w", err)
	}
	return work, nil
}

// old is the age of a folder that nobody builds in: its program was killed.
const old = 6 * time.Hour

// sweep deletes what programs have left that were killed.
func sweep(dir string) {
	list, _ := os.ReadDir(dir) // what cannot be read is left
	for _, e := range list {
		if x, err := e.Info(); err == nil && e.IsDir() && time.Since(x.ModTime()) > old {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// writePackage writes the files of a package to a new folder.
func writePackage(dir string, files []File) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f.Path)), f.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Package is a package of foreign Go for Build: its files, which were checked, and the name of its
// folder in the program.
type Package struct {
	Name  string
	Files []File
}

// Build builds a program of foreign packages, with optimisation, for a user who runs it himself:
// nothing watches it. main makes the text of main.go from the import paths of the packages. wrong
// is what the compiler says of the packages, a line each; remove deletes what was made, and is
// never nil.
func Build(ctx context.Context, root string, packages []Package, main func(paths []string) []byte) (bin string, remove func(), wrong []string, err error) {
	work, err := newFolder(root, "own")
	remove = func() {}
	if err != nil {
		return "", remove, nil, err
	}
	remove = func() { os.RemoveAll(work) }
	name := filepath.Base(work)
	var paths []string
	for _, p := range packages {
		if err := writePackage(filepath.Join(work, p.Name), p.Files); err != nil {
			return "", remove, nil, err
		}
		paths = append(paths, module.Path+"/labs/_grade/"+name+"/"+p.Name)
	}
	if err := os.WriteFile(filepath.Join(work, "main.go"), main(paths), 0o644); err != nil {
		return "", remove, nil, err
	}
	bin = filepath.Join(work, "btrlab")
	out, err := compile(ctx, root, name, bin)
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		if line != "" && !strings.HasPrefix(line, "# ") {
			wrong = append(wrong, strings.ReplaceAll(line, "labs/_grade/"+name+"/", ""))
		}
	}
	return bin, remove, wrong, err
}

// buildErrors are the compiler's words without the folder. An error in the grader's own file is
// about what it calls.
func (c *Code) buildErrors(out, folder string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		own := strings.HasPrefix(line, folder+"main.go:")
		if strings.HasPrefix(line, "# ") {
			continue
		}
		line = strings.ReplaceAll(line, folder+"student/", "")
		if own {
			_, line, _ = strings.Cut(line, ": ")
			line = fmt.Sprintf("want %s: %s", c.Want, strings.ReplaceAll(line, "student.", ""))
		}
		lines = append(lines, line)
	}
	return grade.Few(lines)
}

// crash says how a grading program ended that left no report: its last words, and where the
// student's code was.
func crash(err error, out []byte) []string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	// a goroutine each, the one that it was first
	for stack := range bytes.SplitSeq(out, []byte("\n\n")) {
		at := StudentLine(stack)
		if at == "" {
			continue
		}
		what := strings.TrimPrefix(lines[0], "runtime: ")
		if strings.HasPrefix(what, "goroutine stack exceeds") {
			what = "calls itself without end"
		}
		return []string{at + ": " + what}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && killed(exit) {
		return []string{"the system killed the program: has it run out of memory?"}
	}
	return append([]string{err.Error()}, lines[:min(len(lines), 12)]...)
}

// killed reports whether a program was ended by SIGKILL.
func killed(exit *exec.ExitError) bool {
	s, ok := exit.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && s.Signal() == syscall.SIGKILL
}

// errNoGo means that the go tool is not in PATH.
var errNoGo = errors.New("there is no go tool in PATH: code in Go is judged with it; get Go 1.21 or newer from https://go.dev/dl")

// Root finds the module's folder from dir upwards.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		b, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module "+module.Path+"\n") {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is in no clone of btrlab: its source and the go tool are needed, so cd to a clone, or make a folder with both by btrlab lab init DIR", dir)
		}
	}
}
