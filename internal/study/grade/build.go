package grade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// runLimit ends a grading program that does not: a loop without a scheduling point in it. It is no part of any grade.
const runLimit = 10 * time.Minute

const mainText = `package main

import (
	"os"

	"btrlab/internal/data/inode"
	"btrlab/internal/study/grade"
	student "btrlab/labs/_grade/%s/student"
)

var _ inode.RangeLocker

func main() { os.Exit(grade.Main(%s, os.Args[1:])) }
`

// gradeGo grades a lab whose solution is a Go package.
func (l *Lab) gradeGo(root, dir string, o Options) ([]Row, error) {
	total := 0.0
	for _, w := range workloads(l.N) {
		total += w.points
	}
	files, err := sources(dir)
	if err != nil {
		return nil, err
	}
	if _, bad := Check(files, l.allowed); len(bad) > 0 {
		return refused("check", total, bad), nil
	}
	work := filepath.Join(root, "labs", "_grade")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	work, err = os.MkdirTemp(work, fmt.Sprintf("%02d-", l.N))
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if err := os.Mkdir(filepath.Join(work, "student"), 0o755); err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(work, "student", filepath.Base(f)), b, 0o644); err != nil {
			return nil, err
		}
	}
	name := filepath.Base(work)
	if err := os.WriteFile(filepath.Join(work, "main.go"), fmt.Appendf(nil, mainText, name, l.main), 0o644); err != nil {
		return nil, err
	}
	bin := filepath.Join(work, "grader")
	build := exec.Command("go", "build", "-o", bin, "./labs/_grade/"+name)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return nil, fmt.Errorf("build the grader: %w", err)
		}
		text := strings.ReplaceAll(string(out), "labs/_grade/"+name+"/student/", "")
		return refused("build", total, strings.Split(strings.TrimSpace(text), "\n")), nil
	}
	report := filepath.Join(work, "report.json")
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	args := []string{report, fmt.Sprint(l.N)}
	if o.Workload != "" {
		args = append(args, o.Workload, o.Schedule)
	}
	run := exec.CommandContext(ctx, bin, args...)
	run.Dir = work
	out, err := run.CombinedOutput()
	if ctx.Err() != nil {
		return refused("run", total, []string{"the grader did not end: is there a loop without a wait?"}), nil
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return refused("run", total, append([]string{err.Error()}, lines[:min(len(lines), 12)]...)), nil
	}
	b, err := os.ReadFile(report)
	if err != nil {
		return refused("run", total, []string{"the grader left no report"}), nil
	}
	var rows []Row
	return rows, json.Unmarshal(b, &rows)
}
