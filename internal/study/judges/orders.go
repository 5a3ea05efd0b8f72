package judges

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/module"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
)

// Orders is lab 11: the order of a batch under two policies, and what becomes of orders that others
// have made.
type Orders struct {
	Locked, Unlocked func() []policy.WriteStep
	Answers          func() map[string]string

	locked, unlocked []policy.WriteStep // once they are called
	answers          map[string]string
}

// About says what the lab is.
func (*Orders) About() *About {
	return &About{N: 11, Folder: "11-order-a-write", Title: "Order a write", Minutes: 90, Blind: "an order of steps", Narrow: true, File: "order.go",
		Code: judged(sandbox.Rules{Allowed: []string{policyPath}, Entry: "Locked",
			Want: "func Locked and func Unlocked, which return []policy.WriteStep, and func Answers() map[string]string"},
			"&judges.Orders{Locked: student.Locked, Unlocked: student.Unlocked, Answers: student.Answers}")}
}

func (o *Orders) read() (name string, wrong []string) {
	for _, x := range []struct {
		name string
		f    func() []policy.WriteStep
		to   *[]policy.WriteStep
	}{{"Locked", o.Locked, &o.locked}, {"Unlocked", o.Unlocked, &o.unlocked}} {
		sandbox.Call(x.name)
		*x.to = slices.Clone(x.f())
		if err := policy.CheckWriteOrder(*x.to); err != nil {
			wrong = append(wrong, x.name+": "+err.Error())
		}
	}
	answers, bad := written(o.Answers, o.questions())
	o.answers = answers
	return "order", append(wrong, bad...)
}

func (o *Orders) said() map[string]string { return o.answers }

// orderQuestion is an order of somebody else: which schedule breaks it, or never.
type orderQuestion struct {
	name, asks string
	order      []policy.WriteStep
	policy     string
	workload   string // a row of orderPrograms
}

// moved is a right order with step after another one, or at the front after NoStep. NoStep is not
// moved. Linux has SetDelalloc before DirtyPages, which no task can tell.
func moved(step, after policy.WriteStep) []policy.WriteStep {
	o := policy.WriteOrder{policy.FaultIn, policy.Reserve, policy.PreparePages, policy.LockExtent, policy.CopyFromUser,
		policy.DirtyPages, policy.ISizeWrite, policy.SetDelalloc, policy.DropPages, policy.BalanceDirty}
	l := slices.DeleteFunc(slices.Clone(o[:]), func(s policy.WriteStep) bool { return s == step })
	if step == policy.NoStep {
		return l
	}
	return slices.Insert(l, 1+slices.Index(l, after), step)
}

// orderQuestions are lab 11's: which swaps do not matter, and who can tell the others.
var orderQuestions = []orderQuestion{
	{"size-last", "i_size follows when the pages are unlocked", moved(policy.ISizeWrite, policy.DropPages), "locked", "order-append"},
	{"size-last-inside", "the same in a write inside EOF without i_rwsem, and a truncate", moved(policy.ISizeWrite, policy.DropPages), "unlocked-drain", "order-truncate"},
	{"size-first", "i_size follows before the pages are dirty", moved(policy.ISizeWrite, policy.CopyFromUser), "locked", "order-append"},
	{"delalloc-last", "the range gets its space when the pages are unlocked", moved(policy.SetDelalloc, policy.DropPages), "locked", "order-append"},
	{"copy-early", "the bytes are copied before the extent range is locked", moved(policy.CopyFromUser, policy.PreparePages), "locked", "order-part"},
	{"dirty-early", "the pages are copied and dirty before the extent range is locked", moved(policy.LockExtent, policy.DirtyPages), "locked", "order-again"},
	{"reserve-first", "space is promised before the source is present", moved(policy.FaultIn, policy.Reserve), "locked", "order-source"},
	{"source-last", "the source is made present after the batch, for the next one", moved(policy.FaultIn, policy.BalanceDirty), "locked", "order-short"},
	{"dirty-late", "the pages are dirty when the range has its space already", moved(policy.DirtyPages, policy.SetDelalloc), "locked", "order-append"},
	{"range-first", "the extent range is locked before the pages", moved(policy.PreparePages, policy.LockExtent), "locked+WRONG_EXTENT_BEFORE_PAGE", "order-inside"},
}

// orderPrograms are what a write's order is tried on.
func orderPrograms() map[string]*scenario.Scenario {
	pages := []string{"i_rwsem", "dio_wait", "page", "extent", "io_tree"}
	ordered := []string{"i_rwsem", "page", "stable_page", "extent", "io_tree", "ordered_extent", "workqueue_idle", "device"}
	cached := func(n int64) scenario.File { return scenario.File{Size: n, Cached: all(n)} }
	dirty := scenario.File{Size: 4 * kib, Dirty: all(4 * kib)}
	m := map[string]*scenario.Scenario{}
	add := func(name, about string, f scenario.File, classes []string, tasks ...scenario.Task) *scenario.Scenario {
		m[name] = &scenario.Scenario{Name: name, About: about, File: f, Tasks: tasks, Switch: classes, Rule: calls, Deep: true, MaxSteps: 2_000}
		return m[name]
	}
	add("order-source", "the source of the write is a mapping of the page that it overwrites", cached(8*kib), pages,
		task("writer", scenario.Op{Kind: scenario.OpWrite, Off: 4 * kib, N: 4 * kib, Mapped: true, MapOff: 4 * kib}))
	add("order-short", "the source gives a part, or all, while another task writes back", scenario.File{Size: 8 * kib}, pages,
		task("writer", scenario.Op{Kind: scenario.OpWrite, N: 8 * kib, Short: 5000}), task("writeback", scenario.Flush()))
	add("order-append", "a write beyond EOF, and writeback", cached(4*kib), pages, task("writer", scenario.Write(4*kib, 4*kib)), task("writeback", scenario.Flush()))
	add("order-inside", "a write of two pages that are written back", scenario.File{Size: 8 * kib, Dirty: all(8 * kib)}, pages, task("writer", scenario.Write(0, 8*kib)), task("writeback", scenario.Flush()))
	add("order-part", "a write of a part of a page that is written back and leaves memory", dirty, ordered,
		task("writer", scenario.Write(512, 512)), task("other", scenario.Flush(), scenario.Drop()))
	add("order-again", "the same page is written back twice", dirty, ordered,
		task("writer", scenario.Write(0, 4*kib)), task("other", scenario.Flush(), scenario.Drop(), scenario.Flush()))
	add("order-writers", "two writers of one page, and writeback", dirty, ordered,
		task("writer A", scenario.Write(0, 4*kib)), task("writer B", scenario.Write(0, 2*kib)), task("writeback", scenario.Flush()))
	add("order-truncate", "a truncate into the middle of the write", cached(12*kib), pages, task("writer", scenario.Write(4*kib, 4*kib)), task("truncate", scenario.Truncate(6*kib)))
	add("order-throttle", "a write of three batches of which each alone is more than may be dirty", cached(96*kib), []string{"i_rwsem", "balance_dirty", "flusher_idle", "page", "extent"},
		task("writer", scenario.Write(0, 96*kib))).DirtyLimit = 16 * kib
	return m
}

// Workloads are the student's two orders, each on what can tell, then the questions.
func (o *Orders) Workloads() []Workload {
	programs := orderPrograms()
	var l []Workload
	add := func(prefix, pol string, points float64, order []policy.WriteStep, names ...string) {
		for _, n := range names {
			s := *programs["order-"+n]
			s.Name = prefix + n
			l = append(l, Workload{name: s.Name, asks: s.About, points: points, policy: pol, limit: 120, scenario: &s, at: atStep, order: func(p *policy.Policy) {
				p.WriteSteps = policy.WriteOrder(order)
				p.Name += " with your order"
			}})
		}
	}
	add("locked-", "locked", 5, o.locked, "source", "short", "append", "inside", "part", "again", "throttle")
	add("unlocked-", "unlocked-drain", 5, o.unlocked, "source", "inside", "part", "again", "writers", "truncate", "throttle")
	return append(l, o.questions()...)
}

// questions are the rows about the orders of others.
func (o *Orders) questions() (l []Workload) {
	programs := orderPrograms()
	for _, q := range orderQuestions {
		s := *programs[q.workload]
		s.Name = q.name
		w := Workload{name: q.name, asks: q.asks + ": a schedule that breaks it, or never", points: 3, policy: q.policy, limit: 2_000, scenario: &s, at: atStep}
		w.order = func(p *policy.Policy) {
			p.WriteSteps = policy.WriteOrder(q.order)
			p.Name = w.policy + ", " + w.asks
		}
		asked := w
		w.judge = func(j *judging, r *grade.Row) error { return asked.answered(j, o.answers[q.name], r) }
		l = append(l, w)
	}
	return l
}

// answered judges the answer to a question by an execution, or by a search.
func (w *Workload) answered(j *judging, answer string, r *grade.Row) error {
	switch a := strings.TrimSpace(answer); a {
	case "", "?":
		r.Result = NoAnswer
		return nil
	case Never:
		found := *r
		if err := w.explore(j, &found); err != nil {
			return err
		}
		r.Schedules, r.Switch, r.Pass = found.Schedules, found.Switch, found.Pass
		r.Result = "never: " + found.Result
		if !found.Pass { // without the schedule: that is what was asked for
			r.Result = fmt.Sprintf("it can be broken: %s", found.Kind)
		}
		return nil
	default:
		if err := w.runOne(a, r); err != nil {
			return err
		}
		r.Schedule, r.Trace = "", ""
		switch {
		case r.Misfit:
			r.Misfit = false // it is the student's answer, and not what a caller wants replayed
		case r.Violated:
			r.Pass, r.Violated, r.Kind = true, false, explore.OK
			r.Result = "found: " + r.Result
		default:
			r.Pass, r.Result = false, "nothing is violated by this schedule"
		}
		return nil
	}
}

// stepOf is the step of a batch that a stack is in.
func stepOf(stack explore.Stack) (policy.WriteStep, bool) {
	for _, f := range stack {
		name, ok := strings.CutPrefix(f.Func, module.Path+"/internal/iopath/buffered.(*write).")
		if !ok {
			continue
		}
		for s := policy.FaultIn; s <= policy.BalanceDirty; s++ {
			if strings.EqualFold("policy."+name, s.GoString()) {
				return s, true
			}
		}
	}
	return 0, false
}

// atStep says at which step of its order a batch was when the order broke: a panic's, else that of
// a task that was preempted, else the last.
func atStep(tr *scenario.Trace) (at string) {
	say := func(s policy.WriteStep) string { return "the batch is at " + s.GoString() }
	if s, ok := stepOf(tr.Violation.At); ok {
		return say(s)
	}
	for _, x := range tr.Steps {
		if x.Preempts && at != "" {
			return at
		}
		if s, ok := stepOf(x.Stack); ok {
			at = say(s)
		}
	}
	return at
}
