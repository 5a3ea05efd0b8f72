package judges

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/sandbox"
)

// Play is the verb that plays the levels of package levels.
const Play = "lab run"

// WarmUp is lab 0: the levels of package levels.
type WarmUp struct{}

// About says what the lab is.
func (WarmUp) About() *About {
	return &About{N: 0, Folder: "00-warm-up", Title: "Warm-up", Minutes: 10, Blind: "answers are schedules", File: answersFile, Try: Play}
}

// Workloads are the levels.
func (WarmUp) Workloads() (rows []Workload) {
	for _, k := range levels.All {
		rows = append(rows, Workload{name: k.Name, asks: k.Title + ": " + k.Rule(), points: k.Points, answer: func(_ context.Context, answer string, _ func(sandbox.Progress), r *grade.Row) error {
			v := k.Judge(answer)
			r.Pass, r.Result, r.Schedules = v.Won, v.Says, v.Schedules
			return nil
		}})
	}
	return rows
}

// Won says which levels the answers in dir win.
func Won(dir string) (map[string]bool, error) {
	got, _, err := readAnswers(filepath.Join(dir, answersFile), WarmUp{}.Workloads())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	won := map[string]bool{}
	for _, l := range levels.All {
		if a := got[l.Name]; a != "" && a != "?" {
			won[l.Name] = l.Judge(a).Won
		}
	}
	return won, nil
}

const answersFile = "answers.txt"

// KeepAnswer enters the answer to a level into the file of answers in dir, which it makes, and
// leaves its other lines as they are.
func KeepAnswer(dir string, l *levels.Level, answer string) error {
	if len(answer) > maxSchedule {
		return fmt.Errorf("an answer of %d characters, want at most %d", len(answer), maxSchedule)
	}
	path := filepath.Join(dir, answersFile)
	b, err := sandbox.Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	line, kept := fmt.Sprintf("%s = %s", l.Name, answer), false
	var lines []string
	if len(b) > 0 {
		lines = strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	}
	for i, old := range lines {
		if name, _, ok := strings.Cut(old, "="); ok && strings.TrimSpace(name) == l.Name {
			lines[i], kept = line, true
		}
	}
	if !kept {
		lines = append(lines, line)
	}
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}
