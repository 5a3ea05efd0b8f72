// Package grade grades the labs: it reads what a student wrote, puts it into the real write path,
// and lets the explorer and virtual time judge. Nothing is graded by the host's clock.
//
// The answers to labs 0 and 1 are schedules, policies and the word never, which are run as they are
// (schedules.go, levels.go). Those to the other labs are Go: Grade checks the code (check.go),
// copies it into a folder of the module that the go tool skips, writes a main for it, builds both
// and runs the program (build.go), which judges (judge.go, search.go) and leaves the rows of the
// Report. It ends itself when student code takes too much processor time or memory (watch.go); then
// another process goes on at the next row (ledger.go).
//
// Invariants:
//   - correctness comes before any ratio: a ratio counts only when no workload is violated;
//   - the same files give the same report on every machine, but for the line in which code was that
//     did not end;
//   - a row that is not exhausted says so.
package grade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"btrlab/internal/module"
	"btrlab/internal/prose"
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

// Yours names the student's policy among the Times of a row.
const Yours = "yours"

// Wait is how often and how long, in virtual time, the tasks of a job waited for a lock, or held
// it.
type Wait struct {
	Policy string `json:"policy"`
	Lock   string `json:"lock"`
	Count  int64  `json:"count"`
	Nanos  int64  `json:"nanos"`
}

// Report is what grading came to.
type Report struct {
	Lab   int     `json:"lab"`
	Title string  `json:"title"`
	Dir   string  `json:"dir"`
	Rows  []Row   `json:"rows"`
	Score float64 `json:"score"`
	Max   float64 `json:"max"`
	Pass  bool    `json:"pass"`
	// Teacher are the points that a teacher may give beside Max.
	Teacher float64 `json:"teacher,omitempty"`
	// Prediction are the student's answers of before, if any.
	Prediction []Answer `json:"prediction,omitempty"`
	// LeftOut is how many personal questions were not graded, because the student is not named.
	LeftOut int `json:"left_out,omitempty"`
	// Unpredicted says that there is no prediction though the lab asks for one.
	Unpredicted bool `json:"unpredicted,omitempty"`
}

// sum fills the totals.
func (r *Report) sum() {
	r.Score, r.Max, r.Teacher, r.Pass = 0, 0, 0, len(r.Rows) > 0
	for _, x := range r.Rows {
		r.Score += x.Score
		r.Max += x.Max
		r.Teacher += x.Teacher
		r.Pass = r.Pass && x.Pass
	}
}

// Course is a lab of the course: the pages, questions and grades around its judge.
type Course struct {
	*About
	judge Lab
}

// Labs are the labs that can be taken, by number.
var Labs = course()

func course() (l []*Course) {
	for _, j := range All {
		l = append(l, &Course{j.About(), j})
	}
	return l
}

// Capstone is the last lab.
func Capstone() *Course { return Labs[len(Labs)-1] }

// Levels is the lab whose rows are levels that can be played.
func Levels() *Course {
	return Labs[slices.IndexFunc(Labs, func(l *Course) bool { return l.Try == Play })]
}

// Explored are the names of the lab's workloads that have schedules.
func (l *Course) Explored() []string { return explored(l.judge) }

// Lookup finds a lab by its number.
func Lookup(n int) (*Course, error) {
	var have []string
	for _, l := range Labs {
		if l.N == n {
			return l, nil
		}
		have = append(have, fmt.Sprint(l.N))
	}
	return nil, fmt.Errorf("no lab %d, have %s", n, strings.Join(have, ", "))
}

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
			return "", fmt.Errorf("%s is in no clone of btrlab: labs need its source and the go tool", dir)
		}
	}
}

// Needs are the packages that the program is built of that grades a student's package.
func (l *Course) Needs() []string { return l.code.needs() }

// Dir is the lab's folder below root.
func (l *Course) Dir(root string) string { return filepath.Join(root, "labs", l.Folder) }

// Text is the lab's README.
func (l *Course) Text(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(l.Dir(root), "README.md"))
	return string(b), err
}

// MaxHint is the last level of hints: a nudge, the idea, almost the answer.
const MaxHint = 3

// Hint returns the hint of level 1 to MaxHint. hints.md has a heading "## 1", "## 2" or "## 3"
// before each.
func (l *Course) Hint(root string, level int) (string, error) {
	if level < 1 || level > MaxHint {
		return "", fmt.Errorf("hint level %d, want 1 to %d", level, MaxHint)
	}
	b, err := os.ReadFile(filepath.Join(l.Dir(root), "hints.md"))
	if err != nil {
		return "", err
	}
	_, text, ok := strings.Cut("\n"+string(b), fmt.Sprintf("\n## %d\n", level))
	if !ok {
		return "", fmt.Errorf("hints.md of lab %d has no level %d", l.N, level)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return strings.TrimSpace(text) + "\n", nil
}

// Question is asked before the lab. predict.json has what is asked; what is so is in AnswersFile,
// or SealedFile in a handout.
type Question struct {
	Ask     string   `json:"ask"`
	Choices []string `json:"choices"` // a, b, c ...
	Answer  string   `json:"answer"`
	Why     string   `json:"why"` // shown after grading, with the execution that shows it
	// Personal is set for a question that is no prediction: it is graded, and each student has
	// another one.
	Personal *Personal `json:"personal,omitempty"`
}

// Answer is a student's prediction and what is right, where the answers have been handed out.
type Answer struct {
	Ask   string `json:"ask"`
	Said  string `json:"said"`
	Right string `json:"right"`
	Why   string `json:"why"`
}

// Questions are the lab's predictions. The answers may be missing.
func (l *Course) Questions(root string) ([]Question, error) {
	var q, answers []Question
	if err := l.readPredict(filepath.Join(l.Dir(root), "predict.json"), &q); err != nil {
		return nil, err
	}
	q = slices.DeleteFunc(q, func(q Question) bool { return q.Personal != nil })
	err := l.readPredict(filepath.Join(l.Dir(root), filepath.FromSlash(AnswersFile)), &answers)
	if errors.Is(err, fs.ErrNotExist) {
		err = l.readSealed(root, &answers)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return q, nil
	case err != nil:
		return nil, err
	case len(answers) != len(q):
		return nil, fmt.Errorf("lab %d has %d questions and %d answers", l.N, len(q), len(answers))
	}
	for i := range q {
		q[i].Answer, q[i].Why = answers[i].Answer, answers[i].Why
	}
	return q, nil
}

func (l *Course) readPredict(path string, q *[]Question) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, q); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (l *Course) predictionFile(root string) string {
	return filepath.Join(root, "labs", "_grade", fmt.Sprintf("prediction-%02d.json", l.N))
}

// Predict keeps the answers, a letter for each question.
func (l *Course) Predict(root string, said []string) error {
	qs, err := l.Questions(root)
	if err != nil {
		return err
	}
	if len(said) != len(qs) {
		return fmt.Errorf("have %s, want %d", prose.Count(len(said), "answer"), len(qs))
	}
	said = slices.Clone(said)
	for i, s := range said {
		s = strings.ToLower(s)
		said[i] = s
		if len(s) != 1 || s[0] < 'a' || int(s[0]-'a') >= len(qs[i].Choices) {
			return fmt.Errorf("answer %d is %q, want a letter from a to %c", i+1, s, 'a'+len(qs[i].Choices)-1)
		}
	}
	b, err := json.Marshal(said)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.predictionFile(root)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(l.predictionFile(root), append(b, '\n'), 0o644)
}

// Said are the answers that Predict has kept, nil for none.
func (l *Course) Said(root string) (said []string) {
	for _, a := range l.prediction(root) {
		said = append(said, a.Said)
	}
	return said
}

// prediction is what was predicted, beside what is right. None is no error.
func (l *Course) prediction(root string) []Answer {
	b, err := os.ReadFile(l.predictionFile(root))
	if err != nil {
		return nil
	}
	var said []string
	qs, err := l.Questions(root)
	if json.Unmarshal(b, &said) != nil || err != nil || len(said) != len(qs) {
		return nil
	}
	var out []Answer
	for i, q := range qs {
		out = append(out, Answer{q.Ask, said[i], q.Answer, q.Why})
	}
	return out
}

// Options say how to grade.
type Options struct {
	// Dir is the student's folder; empty is the lab's own.
	Dir string
	// Workload and Schedule, when Workload is set, run only one schedule of one workload.
	Workload, Schedule string
	// Student is the id that the personal questions are made from; without one they are left out.
	Student string
	// First ends the grading at the first row that fails; the rows after it are missing.
	First bool
	// Schedules, unless it is 0, bounds each pass of each search that has no bound of its own below
	// it.
	Schedules int
	// Limit, unless it is 0, bounds the building and running of a student's code, in time of this
	// machine, and CPU the running, in processor time of all its processes: the rows that are not
	// judged by then have no points, and the report says which limit it was.
	Limit, CPU time.Duration
	// Profile, if set, is the file that gets the profile of the waits of what was measured, if the
	// lab measures and nothing is violated.
	Profile string
	// Explored, if set, has the rows of code that was explored before, and gets those of this one,
	// whose name is Name: see GradeAll.
	Explored *Explored
	Name     string
	// Progress, if set, is called now and then during a search.
	Progress func(Progress)
	// Judged, if set, is called with the name and the Verdict of each row, once, when it is known.
	// Rows of a family come before the family's.
	Judged func(name, verdict string)
}

// Progress is how far a search of the grading is.
type Progress struct {
	Workload string
	explore.Progress
}

// Grade grades lab l. An error is about the tools, or a *NoFilesError; what is wrong with the
// student's files is in the report. When ctx ends, so does the grading, with its error.
func Grade(ctx context.Context, root string, l *Course, o Options) (*Report, error) {
	dir := o.Dir
	if dir == "" {
		dir = l.Dir(root)
	}
	r := l.report(root, dir)
	if x, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) || err == nil && !x.IsDir() {
		return nil, &NoFilesError{Dir: dir, Want: "files: it is no folder"}
	}
	o.Judged = onceEach(o.Judged)
	var err error
	if l.code == nil {
		r.Rows, err = gradeAnswers(l.judge, filepath.Join(dir, l.File), o)
	} else {
		r.Rows, err = gradeGo(ctx, root, dir, l.judge, o)
	}
	if err != nil {
		return nil, err
	}
	if o.Workload == "" {
		if err := r.addPersonal(l, root, dir, o); err != nil {
			return nil, err
		}
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		o.Judged(x.Name, x.Verdict())
		if x.Violated && x.Replay == "" {
			x.Replay = l.replay(o.Dir, cmp.Or(x.Workload, x.Name), x.Schedule)
		}
	}
	r.Prediction = l.prediction(root)
	r.Unpredicted = r.Prediction == nil
	r.sum()
	return r, nil
}

// replay is the command that shows a schedule of a workload again. The folder is named as it was
// given, and not where it was not: it may be relative to another folder than the clone's.
func (l *Course) replay(dir, workload, schedule string) string {
	in := ""
	if dir != "" {
		in = dirFlag(dir)
	}
	return fmt.Sprintf("btrlab lab grade %d%s --replay %s=%s", l.N, in, workload, schedule)
}

func dirFlag(dir string) string { return " --dir " + prose.ShellWord(dir) }

// addPersonal grades the personal questions, or says that they are left out.
func (r *Report) addPersonal(l *Course, root, dir string, o Options) error {
	if o.Student == "" {
		all, err := l.personal(root)
		r.LeftOut = len(all)
		return err
	}
	rows, err := l.gradePersonal(root, dir, o.Student, o.Progress)
	r.Rows = append(r.Rows, rows...)
	return err
}

func (l *Course) report(root, dir string) *Report {
	r := &Report{Lab: l.N, Title: l.Title, Dir: dir}
	if rel, err := filepath.Rel(root, dir); err == nil && !strings.HasPrefix(rel, "..") {
		r.Dir = rel
	}
	return r
}

// Nothing is the report on a folder that Grade found nothing in: no points, and why.
func (l *Course) Nothing(err *NoFilesError) *Report {
	r := l.report("", err.Dir)
	r.Rows = refused("check", points(l.judge), []string{err.Error()})
	r.sum()
	return r
}

// refused is the report of files that are not run at all.
func refused(what string, max float64, lines []string) []Row {
	return []Row{{Name: what, Asks: "the files can be graded", Max: max, Result: strings.Join(lines, "\n")}}
}
