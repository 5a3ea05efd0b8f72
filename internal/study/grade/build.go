package grade

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
	"time"

	"btrlab/internal/module"
)

// studentPath is the package of the files that are graded in a folder of labs/_grade.
func studentPath(folder string) string { return module.Path + "/labs/_grade/" + folder + "/student" }

const mainText = `package main

import (
	"os"

	student %q
%s)

func main() { os.Exit(grade.Main(%s, os.Args[1:])) }
`

// main is the text of the program that judges the student's package.
func (c *code) mainText(student string) []byte {
	var imports strings.Builder
	for _, p := range append([]string{gradePath}, c.imports...) {
		fmt.Fprintf(&imports, "\t%q\n", p)
	}
	return fmt.Appendf(nil, mainText, student, imports.String(), c.main)
}

// needs are the packages of the module that the program is built of; without Go, those that judge.
func (c *code) needs() []string {
	needs := []string{gradePath}
	if c == nil {
		return needs
	}
	for _, p := range slices.Concat(c.imports, c.allowed) {
		if strings.HasPrefix(p, module.Path+"/") {
			needs = append(needs, p)
		}
	}
	slices.Sort(needs)
	return slices.Compact(needs)
}

// gradeGo grades a lab whose solution is a Go package.
func gradeGo(ctx context.Context, root, dir string, l Lab, o Options) ([]Row, error) {
	files, err := sources(dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, &NoFilesError{Dir: dir, Want: "Go file"}
	}
	return gradeFiles(ctx, root, files, l, o)
}

// gradeFiles checks, builds and runs the files of a package.
func gradeFiles(ctx context.Context, root string, paths []string, l Lab, o Options) ([]Row, error) {
	total, begun, about := points(l), time.Now(), l.About()
	files, err := readAll(paths)
	if err != nil {
		return unread(err, total)
	}
	code, err := check(ctx, root, files, about.code.rules)
	switch {
	case err != nil:
		return nil, err
	case len(code.bad) > 0:
		return refused("check", total, code.bad), nil
	}
	if rows := o.Explored.find(code.canon); rows != nil {
		return about.withEssay(rows, paths[0], o), nil
	}
	work, err := about.stage(root, files)
	if work != "" {
		defer os.RemoveAll(work)
	}
	if err != nil {
		return nil, err
	}
	name := filepath.Base(work)
	bin := filepath.Join(work, "grader")
	// The student's package is not optimised: an optimised loop has instructions without a line.
	within, cancel := o.within(ctx, begun)
	defer cancel()
	build := command(within, root, "go", "build", "-gcflags="+studentPath(name)+"=-N -l", "-o", bin, "./labs/_grade/"+name)
	if out, err := build.CombinedOutput(); err != nil {
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case within.Err() != nil:
			return refused("build", total, []string{o.late()}), nil
		case !errors.As(err, &exit):
			return nil, fmt.Errorf("build the grader: %w", err)
		case !strings.Contains(string(out), "labs/_grade/"+name+"/"): // not the student's
			return nil, fmt.Errorf("build the grader: %w\n%s", err, out)
		}
		return refused("build", total, about.code.buildErrors(string(out), "labs/_grade/"+name+"/")), nil
	}
	if code.untyped != "" { // the compiler and the type checker have seen different files
		return refused("check", total, []string{"cannot be checked: " + code.untyped}), nil
	}
	report := filepath.Join(work, "report.json")
	rows, late, err := attempts(ctx, work, bin, report, l, o, begun)
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
	return about.withEssay(rows, paths[0], o), nil
}

// withEssay is the rows of the code, with one for the student's own text beside it, if the lab
// wants one. file is one of the code.
func (l *About) withEssay(rows []Row, file string, o Options) []Row {
	// one row is what is said of code that was refused, or that First stops at
	whole := o.Workload == "" && len(rows) > 1
	if l.essay != nil && whole && !(o.First && !rows[len(rows)-1].Pass) {
		rows = append(rows, l.essay.row(filepath.Dir(file)))
	}
	return rows
}

// stage makes a folder of the module with the student's files and a main for them. The caller
// removes it, also after an error.
func (l *About) stage(root string, files []handedFile) (work string, err error) {
	work = filepath.Join(root, "labs", "_grade")
	if err = os.MkdirAll(work, 0o755); err == nil {
		work, err = os.MkdirTemp(work, fmt.Sprintf("%02d-", l.N))
	}
	if err != nil {
		return "", fmt.Errorf("your code is built beside the labs, want a clone that can be written: %w", err)
	}
	student := filepath.Join(work, "student")
	if err := os.Mkdir(student, 0o755); err != nil {
		return work, err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(student, filepath.Base(f.path)), f.data, 0o644); err != nil {
			return work, err
		}
	}
	return work, os.WriteFile(filepath.Join(work, "main.go"), l.code.mainText(studentPath(filepath.Base(work))), 0o644)
}

// buildErrors are the compiler's words without the folder. An error in the grader's own file is
// about what it calls.
func (l *code) buildErrors(out, folder string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		own := strings.HasPrefix(line, folder+"main.go:")
		if strings.HasPrefix(line, "# ") {
			continue
		}
		line = strings.ReplaceAll(line, folder+"student/", "")
		if own {
			_, line, _ = strings.Cut(line, ": ")
			line = fmt.Sprintf("want %s: %s", l.want, strings.ReplaceAll(line, "student.", ""))
		}
		lines = append(lines, line)
	}
	return lines
}

// crash says how a grading program ended that left no report: its last words, and where the
// student's code was.
func crash(err error, out []byte) []string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	// a goroutine each, the one that it was first
	for stack := range bytes.SplitSeq(out, []byte("\n\n")) {
		at := studentLine(stack)
		if at == "" {
			continue
		}
		what := strings.TrimPrefix(lines[0], "runtime: ")
		if strings.HasPrefix(what, "goroutine stack exceeds") {
			what = "calls itself without end"
		}
		return []string{at + ": " + what}
	}
	if strings.Contains(err.Error(), "signal: killed") {
		return []string{"the system killed the program: has it run out of memory?"}
	}
	return append([]string{err.Error()}, lines[:min(len(lines), 12)]...)
}
