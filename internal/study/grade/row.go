// Package grade has the rows of a grade: what is judged about a submission, and what came of it.
// Those who judge fill them (package judges), a process hands them to another one (sandbox), and
// reports print them (course).
package grade

import (
	"strings"

	"btrlab/internal/sched/explore"
)

// Row is one thing that is graded.
type Row struct {
	Name  string  `json:"name"`
	Asks  string  `json:"asks"` // what for, in one line
	Max   float64 `json:"max"`
	Score float64 `json:"score"`
	Pass  bool    `json:"pass"`
	// Given says that the starter passes the row as well: see count.
	Given bool `json:"given,omitempty"`
	// Halved says why the row has half of its points, empty if it has not: another row breaks the
	// promise that all are about.
	Halved string `json:"halved,omitempty"`
	// Teacher is what a teacher may give for the row, beside Max.
	Teacher float64 `json:"teacher,omitempty"`
	// Result is the verdict in one line: the bound of a search, a ratio, what is wrong.
	Result string `json:"result"`
	// Violated says that Schedule, which may be empty, shows a violation; Replay is the command for
	// it and Trace the execution step by step, the latter for the first violation only.
	Violated bool   `json:"violated,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	Replay   string `json:"replay,omitempty"`
	Trace    string `json:"trace,omitempty"`
	// Kind is that of the violation, where Result begins with it.
	Kind explore.Kind `json:"kind,omitempty"`
	// Misfit says that Schedule, which was to be replayed, is none or does not fit the program.
	Misfit bool `json:"misfit,omitempty"`
	// Exhausted says that the search has run every schedule that differs.
	Exhausted bool `json:"exhausted,omitempty"`
	// Schedules is how many the searches have run that Result names, and Switch where tasks were
	// switched, when not everywhere.
	Schedules int              `json:"schedules,omitempty"`
	Switch    explore.Switches `json:"switch,omitempty"`
	// Shared is the submission that has the same code and was explored in the place of this one;
	// lines and schedules are that one's.
	Shared string `json:"shared,omitempty"`
	// Workload is what Schedule is for, where the row has several.
	Workload string `json:"workload,omitempty"`
	// Parts are the searches of such a row, and Times what was measured.
	Parts []Part `json:"parts,omitempty"`
	Times []Time `json:"times,omitempty"`
	Locks []Wait `json:"locks,omitempty"` // what the tasks waited for
	Holds []Wait `json:"holds,omitempty"` // what they held, and how long
}

// Part is one search of a row that has several.
type Part struct {
	Name   string `json:"name"`
	Pass   bool   `json:"pass"`
	Result string `json:"result"`
}

// Time is the virtual time that a job takes under a policy, in nanoseconds. Yours is the name of
// the student's policy.
type Time struct {
	Policy string `json:"policy"`
	Nanos  int64  `json:"nanos"`
}

// The student's policy among the Times of a row, and the preset that the others are compared with.
const (
	Yours    = "yours"
	Baseline = "locked"
)

// Wait is how often and how long, in virtual time, the tasks of a job waited for a lock, or held
// it.
type Wait struct {
	Policy string `json:"policy"`
	Lock   string `json:"lock"`
	Count  int64  `json:"count"`
	Nanos  int64  `json:"nanos"`
}

// Verdict is the word for the row in the table.
func (r Row) Verdict() string {
	switch {
	case r.Pass && (r.Score > 0 || r.Max == 0):
		return "ok"
	case r.Pass || r.Score > 0: // of a right answer others may have taken all points
		return "partly"
	}
	return "FAILED"
}

// Ratios are how many times as fast as policy locked each policy is in a row with times, the
// student's first where it was measured.
func (x *Row) Ratios() (policies []string, ratios []float64) {
	base := 0.0
	for _, m := range x.Times {
		if m.Policy == Baseline {
			base = float64(m.Nanos)
		}
	}
	for _, m := range x.Times {
		policies, ratios = append(policies, m.Policy), append(ratios, base/float64(m.Nanos))
	}
	return policies, ratios
}

// Refused is the report of files that are not run at all.
func Refused(what string, max float64, lines []string) []Row {
	return []Row{{Name: what, Asks: "the files can be graded", Max: max, Result: strings.Join(Few(lines), "\n")}}
}
