// Package judges has a judge for each lab, and what they share. Each lab is a type in a file of its
// own and a line of All (all.go); no other file here knows a lab by its number. A judge says what a
// submission may be (rules.go) and which rows are judged about it: a scenario or a program that
// is searched (search.go), a ratio in virtual time (rig.go, recorder.go), or an answer
// (answers.go). Judge runs the rows (judge.go) in the process that package sandbox has built of a
// submission, and counts their points (points.go).
package judges

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// Lab is the judge of a lab. A value of its type holds the functions of a submission: the program
// that is built of one makes it. The zero value, which stands in All, says what the lab is and
// lists its rows.
type Lab interface {
	About() *About
	// Workloads are the rows of the lab, in the order of the report.
	Workloads() []Workload
}

// reader is a Lab whose code is asked before the first row.
type reader interface {
	// read calls the code, once. If it says something that is wrong on sight, the one row of the
	// report has the name and the lines.
	read() (name string, wrong []string)
	// said are the answers to the questions, by the names of their rows.
	said() map[string]string
}

// Workload is one row: something that is run under the student's code.
type Workload struct {
	name   string
	asks   string
	points float64
	// One of these.
	scenario *scenario.Scenario
	program  func(w *explore.World)
	ratio    func() (ok bool, text string, err error)
	// measure fills a row with what a policy costs; clean says that nothing is violated.
	measure func(clean bool, r *grade.Row) error
	// judge fills the row in a way of its own, and replay runs one schedule; nil is that of the
	// scenario or program.
	judge  func(j *judging, r *grade.Row) error
	replay func(schedule string, r *grade.Row) error
	// answer judges an answer of a file, in a lab without Go.
	answer func(ctx context.Context, answer string, tell func(sandbox.Progress), r *grade.Row) error
	// ratio compares nothing: it says whether the code is right, and what comes after it is not
	// measured if not
	judges   bool
	family   *family                // whose row it is in, if it has none of its own
	policy   string                 // of the scenario
	order    func(p *policy.Policy) // a student's, in the place of the policy's; it names itself
	lab      iopath.Lab             // of the scenario's file system
	limit    int                    // schedules of each pass; 0 is maxSchedules
	quick    bool                   // one pass only
	asked    bool                   // of a program: questions of the second half name it
	spurious bool                   // try spurious wake-ups as well, where a task waits in a Cond
	far      []farWorkload          // the same elsewhere, in the same row
	// at, if set, says where in the student's code an execution has gone wrong.
	at func(tr *scenario.Trace) string
	// what it means that a task waits in a Cond for ever; empty is what the explorer says
	stuck   string
	anyWait bool // stuck says it of every wait
}

// family is a row of several workloads.
type family struct {
	name, asks string
	points     float64
}

// explored reports whether the workload has schedules.
func (w *Workload) explored() bool { return w.ratio == nil && w.measure == nil && w.answer == nil }

// onlyMeasures reports whether the workload may fail and violate nothing.
func (w *Workload) onlyMeasures() bool { return w.ratio != nil && !w.judges || w.measure != nil }

// Points are what the grader gives for all rows of a lab. A teacher may give more.
func Points(l Lab) float64 {
	sum := 0.0
	var last *family
	for _, w := range l.Workloads() {
		sum += w.points
		if w.family != nil && w.family != last {
			sum += w.family.points
		}
		last = w.family
	}
	return sum
}

// Explored are the names of a lab's workloads that have schedules.
func Explored(l Lab) []string {
	var names []string
	for _, w := range l.Workloads() {
		if w.explored() {
			names = append(names, w.name)
		}
	}
	return names
}

// Searched reports whether a lab has a workload of that name with schedules, which may be one
// elsewhere.
func Searched(l Lab, name string) bool {
	w := find(everywhere(l), name)
	return w != nil && w.explored()
}

const kib = 1024

// calls is POSIX as far as Linux has it: writes whole, the size with them, reads page by page.
var calls = oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesWith}

func all(n int64) []oracle.Range { return []oracle.Range{{Lo: 0, Hi: n}} }

func must(name string) *scenario.Scenario {
	s, err := scenario.Lookup(name)
	if err != nil {
		panic("judges: " + err.Error())
	}
	return s
}

// withLocks is a scenario of the table in which tasks are switched at the student's locks as well,
// where they are not switched everywhere.
func withLocks(name string) *scenario.Scenario {
	s := *must(name)
	if len(s.Switch) > 0 {
		s.Switch = slices.Concat(s.Switch, kit.Classes())
	}
	return &s
}

// studentClass is where a lock-level workload looks: between the lock and the unlock, another task
// may run.
var studentClass = lockdep.NewClass("lab_bytes")

// About is what is said of a lab, and what a submission may be.
type About struct {
	N       int    `json:"lab"`
	Folder  string `json:"folder"` // under labs
	Title   string `json:"title"`
	Minutes int    `json:"minutes"`
	// File is what the student changes.
	File string `json:"file"`
	// Code is what the student's Go may be; nil is a lab without Go.
	Code *sandbox.Code `json:"-"`
	// Given are the rows that the untouched starter passes: see count.
	Given []string `json:"-"`
	// Basis is the row without which no other counts: see count.
	Basis string `json:"-"`
	// Promise is what all rows of the lab are about, in words that end "shows that ...", and Broken
	// the kinds of violation that break it: see halve.
	Promise string         `json:"-"`
	Broken  []explore.Kind `json:"-"`
	// Blind says why the lab's code is not asked elsewhere (far.go): it is told no place and no
	// length. Empty is that it is.
	Blind string `json:"-"`
	// Narrow says that there is about one right order of steps, which everybody has who finds it:
	// of two submissions only the text tells whether one was taken from the other.
	Narrow bool `json:"-"`
	// Essay is the student's own text, if the lab wants one.
	Essay *Essay `json:"-"`
	// Try is the verb that tries an answer, in a lab without Go.
	Try string `json:"-"`
}

// Dir is the lab's folder below root.
func (l *About) Dir(root string) string { return filepath.Join(root, "labs", l.Folder) }

// HandoutFile marks the root of a handout, and has the digests of its starters, a line each as
// sha256sum writes them.
const HandoutFile = "HANDOUT"

// Untouched reports whether the lab's starter is as it was handed out. A tree that is no handout
// says yes: there a starter that was changed is a mistake.
func (l *About) Untouched(root string) (bool, error) {
	marker, err := os.ReadFile(filepath.Join(root, HandoutFile))
	if os.IsNotExist(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(filepath.Join(l.Dir(root), l.File))
	if err != nil {
		return false, err
	}
	return strings.Contains(string(marker), fmt.Sprintf("%x  labs/%s/%s\n", sha256.Sum256(b), l.Folder, l.File)), nil
}
