package practice

import (
	"fmt"
	"strings"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/scenario"
)

// Kind is the kind of a question.
type Kind string

// The kinds.
const (
	Break  Kind = "break"  // a schedule that breaks the rule, or never
	See    Kind = "see"    // all that can be seen in one place
	Fewest Kind = "fewest" // the least number of preemptions that breaks the rule, or never
	Count  Kind = "count"  // the number of schedules
)

// Kinds lists the kinds.
func Kinds() []Kind { return []Kind{Break, See, Fewest, Count} }

// MaxLevel is the highest level of difficulty; the lowest is 1.
const MaxLevel = 5

// Limit bounds the search of a question: a scenario that is not exhausted by so many schedules is
// none.
const Limit = 20_000

// Never answers that no schedule breaks the rule.
const Never = levels.Never

// Question is one question.
type Question struct {
	Seed  uint64 `json:"seed"`
	Level int    `json:"level"`
	Kind  Kind   `json:"kind"`

	about subject
	given bool // Kind is not the seed's choice
}

// subject is the subject of a question.
type subject interface {
	// tell says in plain words what runs.
	tell() []Para
	// rule is the sentence that must hold.
	rule() string
	// observed says what See is about, and form how an answer is written.
	observed() (what, form string)
	// valid says why a word is no outcome, or nil.
	valid(outcome string) error
	// search runs the schedules. With seen nil the rule judges; else seen is told the outcome of
	// each, and its error is a violation.
	search(seen func(outcome string) error, change func(*explore.Config)) (explore.Result, error)
	// record runs one schedule, judged as by search, and records its steps.
	record(seen func(outcome string) error, schedule string) (*scenario.Trace, error)
}

// Para is a paragraph of a question: a text to be wrapped, or lines that stay as they are.
type Para struct {
	Text  string
	Lines []string
}

// New makes the question of a seed. The kind is the seed's choice unless it is given; not every
// level has every kind.
func New(seed uint64, level int, kind Kind) (*Question, error) {
	return Make(seed, level, kind, nil)
}

// Make is New. Unless it is nil, trying is called with the number of each candidate, from 1, before
// the candidate is explored: that may take seconds in all.
func Make(seed uint64, level int, kind Kind, trying func(candidate int)) (*Question, error) {
	if level < 1 || level > MaxLevel {
		return nil, fmt.Errorf("level %d, want 1 to %d", level, MaxLevel)
	}
	r := random(seed)
	for range level { // the same seed is another question at another level
		r = random(r.next())
	}
	kinds := kindsOf[level-1]
	pick := of(&r, kinds...)
	if kind != "" {
		if !has(kinds, kind) {
			return nil, fmt.Errorf("level %d has no questions of kind %q, want one of %s", level, kind, join(kinds))
		}
		pick = kind
	}
	q := &Question{Seed: seed, Level: level, Kind: pick, given: kind != ""}
	return q, q.draw(&r, trying)
}

// kindsOf are the kinds of each level; one that is there twice is drawn twice as often.
var kindsOf = [MaxLevel][]Kind{
	{Break, See},
	{Break, Break, See, See, Count},
	{Break, See, Fewest, Count},
	{Break, See},
	{Break, See},
}

func has(l []Kind, k Kind) bool {
	for _, x := range l {
		if x == k {
			return true
		}
	}
	return false
}

func join(l []Kind) string {
	var s []string
	for _, k := range Kinds() {
		if has(l, k) {
			s = append(s, string(k))
		}
	}
	return strings.Join(s, ", ")
}

// What a question is kept by.
const (
	// candidates; the last ones are kept though they are not broken, or broken, as was wanted
	tries    = 400
	picky    = 300
	minSeen  = 2
	maxSeen  = 6
	minCount = 6
	maxCount = 3_000 // of schedules that a student counts
	maxFile  = 1_500 // of schedules on the real write path, where each takes up to a millisecond
	quick    = 60
)

// draw takes candidates until one is a question.
func (q *Question) draw(r *random, trying func(candidate int)) error {
	broken := r.chance(65)                   // the answer is a schedule or a number, not never
	deep := q.Kind == Fewest && r.chance(50) // one preemption is not enough
	for try := range tries {
		if trying != nil {
			trying(try + 1)
		}
		c := random(r.next()) // one candidate takes as many numbers as it likes
		if q.Level <= 3 {
			q.about = newProgram(&c, q.Level, q.Kind)
		} else {
			q.about = newFile(&c, q.Level, q.Kind, broken)
		}
		ok, err := q.worth(broken, deep && broken, try >= picky)
		if ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("seed %d has no question at level %d: this is a fault of the generator", q.Seed, q.Level)
}

// worth says whether the candidate is a question that is worth to be asked.
func (q *Question) worth(broken, deep, any bool) (bool, error) {
	var lim Options
	if q.Level > 3 {
		lim.limit = maxFile
	}
	switch q.Kind {
	case See:
		o, err := q.outcomes(lim)
		return err == nil && !o.stuck && o.exhausted && len(o.list) >= minSeen && len(o.list) <= maxSeen, err
	case Count:
		n, all, err := q.count(lim)
		return err == nil && all && n >= minCount && n <= maxCount, err
	}
	if broken && !any { // most candidates that do not break are known by few schedules
		x, err := q.about.search(nil, func(c *explore.Config) { c.Schedules = quick })
		if err != nil || x.Verdict != explore.Violated {
			return false, err
		}
	}
	f, err := q.facts(lim)
	if err != nil || !f.exhausted || f.schedules < 2 || f.broken > 0 && f.preemptions == 0 {
		return false, err
	}
	if p, ok := q.about.(*program); ok && !p.meets() {
		return false, nil
	}
	if deep && f.preemptions < 2 && !any {
		return false, nil
	}
	return any || f.broken > 0 == broken, nil
}

// Command is the shell command that asks the question, or with an answer judges it.
func (q *Question) Command(answer ...string) string {
	c := fmt.Sprintf("btrlab practice --seed %d --level %d", q.Seed, q.Level)
	if q.given {
		c += " --kind " + string(q.Kind)
	}
	for _, a := range answer {
		c += fmt.Sprintf(" --answer '%s'", a)
	}
	return c
}

// Title is the question in one line.
func (q *Question) Title() string {
	return map[Kind]string{Break: "which schedule breaks it?", See: "who can see what?", Fewest: "how few preemptions break it?",
		Count: "how many schedules are there?"}[q.Kind]
}

// Text is the question in plain words: what runs, what must hold, and what is asked for.
func (q *Question) Text() []Para {
	l := q.about.tell()
	switch q.Kind {
	case Break:
		return append(l, Para{Text: "The rule: " + q.about.rule() + "."},
			Para{Text: "Give a schedule that breaks the rule, as step:task,step:task for the steps at which another task goes on than by " +
				"default, or the word never if there is none. The empty schedule, whose steps are below, breaks nothing."})
	case Fewest:
		return append(l, Para{Text: "The rule: " + q.about.rule() + "."},
			Para{Text: "What is the least number of preemptions in a schedule that breaks the rule? Give a number, or the word never. A " +
				"preemption lets another task go on though the one that ran last could."})
	case Count:
		return append(l, Para{Text: "In how many orders can the steps be taken? Each line is a step; a task that waits for a lock takes none " +
			"meanwhile. An order is complete when every task has ended or none can go on. Give a number."})
	}
	what, form := q.about.observed()
	return append(l, Para{Text: "Over all schedules: " + what + "? Give everything that is possible, and nothing that is not, with blanks " +
		"between. " + form})
}

// Default is the execution without preemptions, for questions that ask for a schedule; else nil.
func (q *Question) Default() (*scenario.Trace, error) {
	if q.Kind != Break {
		return nil, nil
	}
	return q.about.record(nil, "")
}
