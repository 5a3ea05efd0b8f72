package practice

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Options say how to explore.
type Options struct {
	// Progress and Stop are explore.Config's.
	Progress func(explore.Progress)
	Stop     func() bool

	limit int // of schedules, for the generator; 0 is Limit
}

func (o Options) config(c *explore.Config) {
	c.Schedules, c.Progress, c.Stop = Limit+1, o.Progress, o.Stop
	if o.limit > 0 {
		c.Schedules = o.limit + 1
	}
}

// all says that a search of so many schedules was not ended by its limit.
func (o Options) all(schedules int) bool {
	return schedules <= Limit && (o.limit == 0 || schedules <= o.limit)
}

// ErrStopped says that Options.Stop has ended a search.
var ErrStopped = errors.New("stopped")

// BadAnswer says that an answer is none: no number, no schedule of the scenario, no outcome.
type BadAnswer struct{ Have, Want string }

func (e *BadAnswer) Error() string { return fmt.Sprintf("answer %q, want %s", e.Have, e.Want) }

// Verdict is the judgement of an answer.
type Verdict struct {
	Right bool `json:"right"`
	// Says is the verdict in a sentence. It does not give the right answer away.
	Says string `json:"says"`
	// Count says what was searched, and what is so.
	Count string `json:"count"`
	// Schedule is the one that shows it, the shortest where it breaks something; it belongs to
	// Trace.
	Schedule string `json:"schedule"`
	// Trace is nil when there is nothing to be shown.
	Trace *scenario.Trace `json:"-"`
	// Replay is the command that shows it all again.
	Replay string `json:"replay"`
}

// Judge decides an answer by exploration. The error is a *BadAnswer, ErrStopped, or about the
// tools.
func (q *Question) Judge(answer string, o Options) (*Verdict, error) {
	answer = strings.TrimSpace(answer)
	var v *Verdict
	var err error
	switch q.Kind {
	case Break:
		v, err = q.judgeBreak(answer, o)
	case See:
		v, err = q.judgeSee(answer, o)
	case Fewest:
		v, err = q.judgeFewest(answer, o)
	case Count:
		v, err = q.judgeCount(answer, o)
	}
	if err != nil {
		return nil, err
	}
	v.Replay = q.Command(answer)
	if v.Trace != nil {
		v.Trace.Replay = v.Replay
	}
	return v, nil
}

// facts are the results of a search by the rule.
type facts struct {
	schedules, broken int
	exhausted         bool
	preemptions       int    // of the schedule that breaks with the fewest
	schedule          string // that one
}

// facts exhausts the scenario, and looks for the shortest schedule where one breaks the rule: the
// first search takes schedules that differ only in the order of independent steps for one, and
// knows nothing of preemptions; the second goes by their number.
func (q *Question) facts(o Options) (facts, error) {
	r, err := q.about.search(nil, func(c *explore.Config) {
		o.config(c)
		c.Method, c.All = explore.DPOR, true
	})
	f := facts{schedules: r.Schedules, broken: r.Violations, exhausted: o.all(r.Schedules)}
	if err == nil && r.Stopped {
		err = ErrStopped
	}
	if err != nil || f.broken == 0 {
		return f, err
	}
	r, err = q.about.search(nil, o.config)
	if err == nil && r.Stopped {
		err = ErrStopped
	}
	f.exhausted = f.exhausted && r.Verdict == explore.Violated
	f.preemptions, f.schedule = r.Preemptions, r.Schedule
	return f, err
}

// shown is the shortest schedule that breaks the rule, and what was searched.
func (q *Question) shown(f facts, v *Verdict) (err error) {
	v.Count = fmt.Sprintf("exhausted: %s, and none of them breaks the rule", prose.Count(f.schedules, "schedule"))
	if !f.exhausted {
		v.Count = fmt.Sprintf("searched: %s, which are not all", prose.Count(f.schedules, "schedule"))
	}
	if f.broken == 0 {
		return nil
	}
	broken := fmt.Sprintf("%d break", f.broken)
	if f.broken == 1 {
		broken = "1 breaks"
	}
	v.Count = fmt.Sprintf("exhausted: %s, of which %s the rule; the shortest of them needs %s", prose.Count(f.schedules, "schedule"),
		broken, prose.Count(f.preemptions, "preemption"))
	v.Schedule = f.schedule
	v.Trace, err = q.about.record(nil, f.schedule)
	return err
}

func never(answer string) bool { return strings.EqualFold(answer, Never) }

func (q *Question) judgeBreak(answer string, o Options) (*Verdict, error) {
	v := new(Verdict)
	if !never(answer) {
		tr, err := q.about.record(nil, answer)
		if err != nil {
			return nil, err
		}
		switch tr.Kind {
		case explore.KindMisfit, explore.KindMismatch:
			return nil, &BadAnswer{answer, "never, or a schedule of this scenario: " + tr.Violation.Line()}
		case explore.OK:
			v.Says = "this schedule breaks nothing"
		default:
			v.Right = true
			v.Says = fmt.Sprintf("this schedule breaks the rule (%s), with %s", tr.Kind, prose.Count(tr.Preemptions, "preemption"))
		}
	}
	f, err := q.facts(o)
	if err != nil {
		return nil, err
	}
	if never(answer) {
		if v.Right = f.exhausted && f.broken == 0; v.Right {
			v.Says = "no schedule breaks the rule"
		} else {
			v.Says = "there is a schedule that breaks the rule"
		}
	}
	return v, q.shown(f, v)
}

// number reads a number that is not negative.
func number(answer, want string) (int, error) {
	n, err := strconv.Atoi(answer)
	if err != nil || n < 0 {
		return 0, &BadAnswer{answer, want}
	}
	return n, nil
}

func (q *Question) judgeFewest(answer string, o Options) (*Verdict, error) {
	n := -1
	if !never(answer) {
		var err error
		if n, err = number(answer, "never, or a number of preemptions"); err != nil {
			return nil, err
		}
	}
	f, err := q.facts(o)
	if err != nil {
		return nil, err
	}
	v := new(Verdict)
	switch {
	case n < 0 && f.broken == 0:
		v.Right, v.Says = f.exhausted, "no schedule breaks the rule"
	case n < 0:
		v.Says = "there is a schedule that breaks the rule"
	case f.broken == 0:
		v.Says = fmt.Sprintf("%s do not break the rule", prose.Count(n, "preemption"))
	case n < f.preemptions:
		v.Says = fmt.Sprintf("no schedule with %s breaks the rule", prose.Count(n, "preemption"))
	case n > f.preemptions:
		v.Says = "fewer preemptions are enough"
	default:
		v.Right, v.Says = true, fmt.Sprintf("%s, and no fewer", prose.Count(n, "preemption"))
	}
	return v, q.shown(f, v)
}

// count is how many schedules there are; false when they are more than Limit.
func (q *Question) count(o Options) (int, bool, error) {
	r, err := q.about.search(func(string) error { return nil }, func(c *explore.Config) {
		o.config(c)
		c.Method, c.All = explore.Naive, true
	})
	if err == nil && r.Stopped {
		err = ErrStopped
	}
	return r.Schedules, o.all(r.Schedules), err
}

func (q *Question) judgeCount(answer string, o Options) (*Verdict, error) {
	n, err := number(answer, "a number of schedules")
	if err != nil {
		return nil, err
	}
	have, all, err := q.count(o)
	if err != nil {
		return nil, err
	}
	v := &Verdict{Right: all && n == have, Count: fmt.Sprintf("counted by running each of them: %s", prose.Count(have, "schedule"))}
	switch {
	case v.Right:
		v.Says = fmt.Sprintf("there are %d", n)
	case n < have:
		v.Says = fmt.Sprintf("there are more than %d", n)
	default:
		v.Says = fmt.Sprintf("there are fewer than %d", n)
	}
	return v, nil
}

// outcomes are the results of a search's executions.
type outcomes struct {
	list      []string
	schedules int
	exhausted bool
	stuck     bool // an execution did not come to its end
}

func (q *Question) outcomes(o Options) (outcomes, error) {
	var x outcomes
	seen := map[string]bool{}
	r, err := q.about.search(func(s string) error { seen[s] = true; return nil }, func(c *explore.Config) {
		o.config(c)
		c.Method, c.All = explore.DPOR, true
	})
	if err == nil && r.Stopped {
		err = ErrStopped
	}
	for s := range seen {
		x.list = append(x.list, s)
	}
	slices.SortFunc(x.list, func(a, b string) int {
		if n := len(a) - len(b); n != 0 { // numbers by their value, files by their size
			return n
		}
		return strings.Compare(a, b)
	})
	x.schedules, x.exhausted, x.stuck = r.Schedules, o.all(r.Schedules), r.Violations > 0
	return x, err
}

// ending searches for the shortest schedule that ends with an outcome; false is none.
func (q *Question) ending(outcome string, o Options) (string, bool, error) {
	r, err := q.about.search(ends(outcome), o.config)
	if err == nil && r.Stopped {
		err = ErrStopped
	}
	return r.Schedule, r.Verdict == explore.Violated, err
}

// ends makes an execution that ends with outcome a violation, which is how the explorer is made to
// search for it.
func ends(outcome string) func(string) error {
	return func(s string) error {
		if s == outcome {
			return fmt.Errorf("it ends with %s", outcome)
		}
		return nil
	}
}

func (q *Question) judgeSee(answer string, o Options) (*Verdict, error) {
	said := strings.FieldsFunc(answer, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })
	slices.Sort(said)
	said = slices.Compact(said)
	if len(said) == 0 {
		return nil, &BadAnswer{answer, "what is possible, with blanks between"}
	}
	for _, s := range said {
		if err := q.about.valid(s); err != nil {
			return nil, &BadAnswer{s, err.Error()}
		}
	}
	v := &Verdict{Right: true}
	for _, s := range said { // each is searched for
		_, found, err := q.ending(s, o)
		if err != nil {
			return nil, err
		}
		if !found {
			v.Right, v.Says = false, fmt.Sprintf("no schedule ends with %s", s)
			break
		}
	}
	all, err := q.outcomes(o)
	if err != nil {
		return nil, err
	}
	v.Count = fmt.Sprintf("exhausted: %s, which end with %s", prose.Count(all.schedules, "schedule"), strings.Join(all.list, ", "))
	show := said[len(said)-1]
	if i := slices.IndexFunc(all.list, func(s string) bool { return !slices.Contains(said, s) }); i >= 0 {
		if v.Right {
			v.Says = "something else is possible as well"
		}
		v.Right, show = false, all.list[i]
	} else if v.Right {
		v.Says = "this is all that is possible"
		show = q.farthest(all.list, o)
	}
	var found bool
	if v.Schedule, found, err = q.ending(show, o); err != nil || !found {
		return v, err
	}
	v.Count += fmt.Sprintf("; the schedule below ends with %s", show)
	v.Trace, err = q.about.record(func(string) error { return nil }, v.Schedule)
	return v, err
}

// farthest is the outcome whose shortest schedule is the longest: the one that is worth to be
// looked at.
func (q *Question) farthest(list []string, o Options) string {
	best, most := "", -1
	for _, s := range list {
		if sched, found, err := q.ending(s, o); err == nil && found && strings.Count(sched, ",") > most && sched != "" || best == "" {
			best, most = s, strings.Count(sched, ",")
		}
	}
	return best
}
