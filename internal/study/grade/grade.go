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

// count takes from lab n's rows the points that are not earned. A row that the untouched starter
// passes is nobody's work yet: it counts as soon as one row passes that the starter fails. So a
// starter has no points, and whoever mends one thing keeps the points for what was right. Where
// code that does nothing breaks nothing, the rows count once that of the lab's basis passes, which
// asks for something to be done.
func count(n int, rows []Row) {
	var given []string
	if l, err := Lookup(n); err == nil {
		given = l.given
		onBasis(l.basis, rows)
	}
	earned := false
	for i := range rows {
		r := &rows[i]
		r.Given = slices.Contains(given, r.Name)
		earned = earned || r.Pass && !r.Given
	}
	for i := range rows {
		if r := &rows[i]; r.Given && !earned {
			r.Score = 0
		}
	}
}

// onBasis takes the points of all rows unless that of the basis passes, if there is one.
func onBasis(basis string, rows []Row) {
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == basis })
	if i < 0 || rows[i].Pass {
		return
	}
	for k := range rows {
		if r := &rows[k]; r.Score > 0 {
			r.Score = 0
			r.Result += "; it counts once " + basis + " is ok"
		}
	}
}

// guesses takes the points of right answers that may be guesses: each wrong never takes those of a
// right one, since who says never to everything knows nothing. said are the answers by the names of
// rows.
func guesses(rows []Row, said map[string]string) {
	right, wrong := 0, 0
	for _, r := range rows {
		switch {
		case !strings.EqualFold(strings.TrimSpace(said[r.Name]), never):
		case r.Pass:
			right++
		default:
			wrong++
		}
	}
	if right == 0 || wrong == 0 {
		return
	}
	for i := range rows {
		if r := &rows[i]; r.Pass && strings.EqualFold(strings.TrimSpace(said[r.Name]), never) {
			r.Score = r.Max * float64(max(right-wrong, 0)) / float64(right)
			r.Result += fmt.Sprintf("; %s that %s wrong %s the points of as many that are right", prose.Count(wrong, "never"),
				map[bool]string{true: "is", false: "are"}[wrong == 1], map[bool]string{true: "takes", false: "take"}[wrong == 1])
		}
	}
}

// Lab is a lab of the house.
type Lab struct {
	N       int    `json:"lab"`
	Folder  string `json:"folder"` // under labs
	Title   string `json:"title"`
	Minutes int    `json:"minutes"`
	// File is what the student changes.
	File string `json:"file"`
	// allowed are the packages that it may import; nil is a lab without Go.
	allowed []string
	// entry is the function that the grader calls, want its declaration for people, and shared says
	// that tasks share what it makes.
	entry, want string
	shared      bool
	// own says that it is a program of one's own.
	own bool
	// imports is an import of main's, and text the file with the sections of the student's own
	// report.
	imports, text string
	// main is the expression that makes a Student, with student for the package.
	main string
	// given are the rows that the untouched starter passes: see count.
	given []string
	// basis is the row without which no other counts: see count.
	basis string
}

func (l *Lab) rules() rules { return rules{l.allowed, l.entry, l.want, l.shared, l.own} }

// Labs are the labs that can be taken, by number.
var Labs = []*Lab{
	{N: 0, Folder: "00-warm-up", Title: "Warm-up", Minutes: 10, File: answersFile},
	{N: 1, Folder: "01-be-the-scheduler", Title: "Be the scheduler", Minutes: 60, File: "schedules.txt"},
	{N: 2, Folder: "02-locked-baseline", Title: "The locked baseline", Minutes: 75, File: "measure.go",
		allowed: []string{kitPath, "cmp", "math", "math/bits", "slices", "sort"}, entry: "Measure",
		want: "func Measure(t *kit.Task, c *kit.Client) []int64, and the functions Summarize, Bin, Value, Predict and Enough of the starter",
		main: "grade.Student{Baseline: grade.Baseline{Measure: student.Measure, Summarize: student.Summarize, Bin: student.Bin, Value: student.Value, " +
			"Predict: student.Predict, Enough: student.Enough}}"},
	{N: 3, Folder: "03-unlocked", Title: "Unlocked inside EOF", Minutes: 75, File: "unlock.go",
		allowed: []string{kitPath}, entry: "Write",
		want: "func CanUnlock(pos, n, isize uint64) bool and func Write(t *kit.Task, w *kit.LockedWrite)",
		main: "grade.Student{Locking: grade.Locking{CanUnlock: student.CanUnlock, Write: student.Write}}"},
	{N: 4, Folder: "04-truncate-race", Title: "The truncate race", Minutes: 75, File: "setsize.go",
		allowed: []string{policyPath}, entry: "Steps", want: "func Steps() []policy.SetsizeStep and func Answers() map[string]string",
		main: "grade.Student{Steps: student.Steps, Answers: student.Answers}", given: []string{"shrink-grow", "shrink-grow-reader", "shrink-writeback"}},
	{N: 5, Folder: "05-range-lock", Title: "A range lock", Minutes: 120, File: "rangelock.go",
		allowed: []string{kitPath, "cmp", "fmt", "math", "slices", "sort"}, entry: "New", shared: true,
		want: "func New() *RangeLock, which has Lock and Unlock (t *kit.Task, start, end uint64)",
		main: "grade.Student{NewRangeLock: func() inode.RangeLocker { return kit.Locker{RangeLocker: student.New()} }}",
		given: []string{"lock-identical", "lock-nested", "lock-overlap", "lock-waiters", "two-writers-same", "two-writers-nested",
			"two-writers-overlap", "two-writers-disjoint", "two-writers-eof", "truncate-race", "truncate-into", "lock-far", "lock-stress", "far-writers"}},
	{N: 6, Folder: "06-move-the-waits", Title: "Move the waits out", Minutes: 90, File: "write.go",
		allowed: []string{kitPath}, entry: "Write",
		want: "func Write(t *kit.Task, w *kit.WaitedWrite) error",
		main: "grade.Student{Waits: student.Write}"},
	{N: 7, Folder: "07-nowait-direct", Title: "NOWAIT direct IO", Minutes: 75, File: "extent.go",
		allowed: []string{kitPath, "errors"}, entry: "Extent",
		want: "func Extent(t *kit.Task, x *kit.NowaitExtent) error",
		main: "grade.Student{Nowait: student.Extent}", basis: "nowait-free"},
	{N: 8, Folder: "08-ring", Title: "The ring", Minutes: 90, File: "ring.go",
		allowed: []string{kitPath, "errors"}, entry: "Submit",
		want:  "func Submit and func Work (t *kit.Task, q *kit.Request)",
		main:  "grade.Student{Ring: kit.SubmitPath{Submit: student.Submit, Work: student.Work}}",
		given: []string{"ring-busy", "ring-three", "ring-short", "ring-full", "ring-stall", "ring-queued", "ring-order"}},
	{N: 9, Folder: "09-prepare-first", Title: "Prepare before the path lock", Minutes: 75, File: "item.go",
		allowed: []string{kitPath}, entry: "Put",
		want: "func Put(t *kit.Task, x *kit.LogItem) error",
		main: "grade.Student{LogItem: student.Put}", basis: "log-new"},
	{N: 10, Folder: "10-unaligned", Title: "Less than a block", Minutes: 75, File: "sectors.go",
		allowed: []string{kitPath}, entry: "Write",
		want:  "func Write(t *kit.Task, w *kit.SectorWrite)",
		main:  "grade.Student{Sectors: student.Write}",
		given: []string{"sectors-unwritten", "sectors-block", "sectors-written", "sectors-punch", "sectors-truncate", "sectors-beyond"}},
	{N: 11, Folder: "11-order-a-write", Title: "Order a write", Minutes: 90, File: "order.go",
		allowed: []string{policyPath}, entry: "Locked",
		want: "func Locked and func Unlocked, which return []policy.WriteStep, and func Answers() map[string]string",
		main: "grade.Student{Orders: grade.Orders{Locked: student.Locked, Unlocked: student.Unlocked, Answers: student.Answers}}"},
	{N: 12, Folder: "12-capstone", Title: "A policy of one's own", Minutes: 240, File: "policy.go",
		allowed: []string{kitPath, "cmp", "fmt", "math", "slices", "sort"}, entry: "New", shared: true,
		want:    "func New() *Policy, which has Write, Read, Truncate, Fallocate and Fsync (t *kit.Task, and a pointer to the kit's type of the operation)",
		main:    "grade.Student{Policy: func() kit.Policy { return student.New() }, Profile: profile.NewLocks()}",
		imports: module.Path + "/internal/measure/profile", text: "REPORT.md"},
}

// Lookup finds a lab by its number.
func Lookup(n int) (*Lab, error) {
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

// Dir is the lab's folder below root.
func (l *Lab) Dir(root string) string { return filepath.Join(root, "labs", l.Folder) }

// Text is the lab's README.
func (l *Lab) Text(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(l.Dir(root), "README.md"))
	return string(b), err
}

// MaxHint is the last level of hints: a nudge, the idea, almost the answer.
const MaxHint = 3

// Hint returns the hint of level 1 to MaxHint. hints.md has a heading "## 1", "## 2" or "## 3"
// before each.
func (l *Lab) Hint(root string, level int) (string, error) {
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
func (l *Lab) Questions(root string) ([]Question, error) {
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

func (l *Lab) readPredict(path string, q *[]Question) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, q); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (l *Lab) predictionFile(root string) string {
	return filepath.Join(root, "labs", "_grade", fmt.Sprintf("prediction-%02d.json", l.N))
}

// Predict keeps the answers, a letter for each question.
func (l *Lab) Predict(root string, said []string) error {
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
func (l *Lab) Said(root string) (said []string) {
	for _, a := range l.prediction(root) {
		said = append(said, a.Said)
	}
	return said
}

// prediction is what was predicted, beside what is right. None is no error.
func (l *Lab) prediction(root string) []Answer {
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
func Grade(ctx context.Context, root string, l *Lab, o Options) (*Report, error) {
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
	if l.allowed == nil {
		r.Rows, err = gradeAnswers(l.N, filepath.Join(dir, l.File), o)
	} else {
		r.Rows, err = l.gradeGo(ctx, root, dir, o)
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
func (l *Lab) replay(dir, workload, schedule string) string {
	in := ""
	if dir != "" {
		in = dirFlag(dir)
	}
	return fmt.Sprintf("btrlab lab grade %d%s --replay %s=%s", l.N, in, workload, schedule)
}

func dirFlag(dir string) string { return " --dir " + prose.ShellWord(dir) }

// addPersonal grades the personal questions, or says that they are left out.
func (r *Report) addPersonal(l *Lab, root, dir string, o Options) error {
	if o.Student == "" {
		all, err := l.personal(root)
		r.LeftOut = len(all)
		return err
	}
	rows, err := l.gradePersonal(root, dir, o.Student, o.Progress)
	r.Rows = append(r.Rows, rows...)
	return err
}

func (l *Lab) report(root, dir string) *Report {
	r := &Report{Lab: l.N, Title: l.Title, Dir: dir}
	if rel, err := filepath.Rel(root, dir); err == nil && !strings.HasPrefix(rel, "..") {
		r.Dir = rel
	}
	return r
}

// Nothing is the report on a folder that Grade found nothing in: no points, and why.
func (l *Lab) Nothing(err *NoFilesError) *Report {
	r := l.report("", err.Dir)
	r.Rows = refused("check", points(l.N), []string{err.Error()})
	r.sum()
	return r
}

// refused is the report of files that are not run at all.
func refused(what string, max float64, lines []string) []Row {
	return []Row{{Name: what, Asks: "the files can be graded", Max: max, Result: strings.Join(lines, "\n")}}
}
