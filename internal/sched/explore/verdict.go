package explore

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"btrlab/internal/sched"
)

// Kind says what went wrong.
type Kind string

// The kinds of violation.
const (
	OK           Kind = ""
	KindOracle   Kind = "oracle"         // Check, Finally or Invariant said so
	KindDeadlock Kind = "deadlock"       // a cycle of waits for locks and events
	KindLost     Kind = "lost wake-up"   // a wait that was woken before it began
	KindGone     Kind = "orphaned wait"  // a wait for a task that has ended
	KindLivelock Kind = "livelock"       // MaxSteps, and a task has not ended
	KindOrder    Kind = "lock order"     // classes taken in both orders, or against their ranks
	KindRace     Kind = "data race"      // a Var or Shared
	KindNowait   Kind = "nowait sleep"   // a wait under NOWAIT
	KindLeftover Kind = "leftover"       // locks held at a task's end
	KindPanic    Kind = "panic"          // the program's own
	KindMismatch Kind = "nondeterminism" // the program is not the same twice
	KindDisagree Kind = "disagreement"   // Prove: one search exhausted, the other violated
	// Replay: the schedule is none, or does not fit the program
	KindMisfit Kind = "misfit"
)

// Violation describes how an execution broke a rule, in parts; String puts them together. The zero
// value is no violation.
//
// Its text form is String: of a Violation that was read from text, only What and More are known.
type Violation struct {
	Kind Kind
	// Named says that the report begins with the kind: "deadlock: task 0 ...".
	Named bool
	// Lead stands before What: "task 0 writer: panic", "step 5".
	Lead string
	// What happened, in one line; More explains it in further lines.
	What, More string
	// Task panicked, "0 writer", with the value Panic.
	Task  string
	Panic any
	// At is where it panicked, when recorded by Replay.
	At Stack `json:"-"`
	// Waits are the classes that the tasks in What wait for.
	Waits []sched.ClassID
	// Sides are the two accesses of a data race, when recorded by Replay.
	Sides []Side
}

// Side is one access of a data race.
type Side struct {
	Task  string // "0 writer"
	Step  int
	Stack Stack
}

func (s Side) String() string { return fmt.Sprintf("task %s, step %d:", s.Task, s.Step) }

// Line is the violation in one line, without its kind.
func (v Violation) Line() string {
	if v.Lead != "" {
		return v.Lead + ": " + v.What
	}
	return v.What
}

// String is the whole report.
func (v Violation) String() string {
	s := v.Line()
	if v.Named {
		s = string(v.Kind) + ": " + s
	}
	if v.More != "" {
		s += "\n" + v.More
	}
	if v.Kind == KindPanic && len(v.At) > 0 {
		s += "\n" + strings.TrimSuffix(v.At.own().String(), "\n")
	}
	for _, x := range v.Sides {
		s += "\n" + x.String()
		for _, f := range x.Stack {
			s += "\n" + f.String()
		}
	}
	return s
}

// Violated says that something was violated, and how.
func (v Violation) Violated() string {
	if v.Named {
		return "violated: " + v.String()
	}
	return fmt.Sprintf("violated (%s): %v", v.Kind, v)
}

// MarshalText makes the text form.
func (v Violation) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads the text form.
func (v *Violation) UnmarshalText(b []byte) error {
	*v = Violation{}.saying(string(b))
	return nil
}

// saying is v with a text that others have written: the error of an oracle, the value of a panic.
func (v Violation) saying(text string) Violation {
	v.What, v.More, _ = strings.Cut(text, "\n")
	return v
}

// Frame is a call in a stack.
type Frame struct {
	Func string // with its package: "btrlab/internal/iopath/setsize.SetSize"
	File string // without its folder
	Line int
}

func (f Frame) String() string { return fmt.Sprintf("%s %s:%d", f.Func, f.File, f.Line) }

// Stack is where a task stood, the innermost call first, without the frames of the scheduler and
// the locks. Its text form has a line for each.
type Stack []Frame

func (s Stack) String() string {
	var b strings.Builder
	for _, f := range s {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

// own is the part of the stack that somebody wrote in a lab or as a policy, without the path of the
// package; without such frames it is the stack. The kit and the engine under it say nothing of
// where the mistake is.
func (s Stack) own() Stack {
	var mine Stack
	for _, f := range s {
		_, after, inLabs := strings.Cut(f.Func, "/labs/")
		if inLabs && !strings.HasPrefix(after, "kit.") {
			dot := strings.IndexByte(after[strings.LastIndexByte(after, '/')+1:], '.') + strings.LastIndexByte(after, '/') + 2
			mine = append(mine, Frame{after[dot:], f.File, f.Line})
		}
	}
	if mine == nil {
		return s
	}
	return mine
}

// MarshalText makes the text form.
func (s Stack) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// framesOf resolves a stack.
func framesOf(pc []uintptr) Stack {
	if len(pc) == 0 {
		return nil
	}
	var s Stack
	for it := runtime.CallersFrames(pc); ; {
		f, more := it.Next()
		if i := strings.LastIndexByte(f.File, '/'); i >= 0 && !strings.Contains(f.Function, "internal/sched.") && !strings.Contains(f.Function, "sched/explore.") &&
			!strings.Contains(f.Function, "internal/lock.") && !strings.HasPrefix(f.Function, "iter.") && !strings.HasPrefix(f.Function, "runtime.") {
			s = append(s, Frame{f.Function, f.File[i+1:], f.Line})
		}
		if !more {
			return s
		}
	}
}

// Verdict says how a search ended.
type Verdict string

// The verdicts.
const (
	Exhausted Verdict = "exhausted" // nothing is left to try, and nothing was violated
	Bounded   Verdict = "bounded"   // nothing was violated as far as the search went
	Violated  Verdict = "violated"
)

// Switches are the classes that a search switches at; none means all. Its text form is for people,
// and can be read back.
type Switches []string

const switchesElse = "other classes run on unless they must wait"

func (s Switches) String() string {
	if len(s) == 0 {
		return ""
	}
	return s.Classes() + "; " + switchesElse
}

// Classes are the classes alone.
func (s Switches) Classes() string { return strings.Join(s, ", ") }

// MarshalText makes the text form.
func (s Switches) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the text form.
func (s *Switches) UnmarshalText(b []byte) error {
	*s = nil
	if len(b) == 0 {
		return nil
	}
	l, ok := strings.CutSuffix(string(b), "; "+switchesElse)
	if !ok {
		return fmt.Errorf("bad switch points, have %q want CLASS, CLASS; %s", b, switchesElse)
	}
	*s = strings.Split(l, ", ")
	return nil
}

func (c *Config) switchNames() Switches {
	var l Switches
	for _, id := range c.Switch {
		l = append(l, className(id))
	}
	return l
}

// Coverage says how much was searched, and how the search ended. Its text
// form is String; a Coverage that was read from text knows nothing else.
type Coverage struct {
	Verdict   Verdict
	Method    Method
	Seed      uint64
	Schedules int
	// Preemptions of the schedule when violated; else the number up to which all was tried, -1 for
	// none.
	Preemptions int
	// Found is the number of the execution that violated something.
	Found int
	// Stopped says that Config.Stop ended the search.
	Stopped bool
	// Refused says that DPOR could not judge the program, because a task yields, or takes a lock
	// while its request is NOWAIT. Then Bound has searched it, but for a shard.
	Refused bool
	// At are the classes that the search switched at.
	At Switches
	// Shard of Shards was searched.
	Shard, Shards int
	// Joined shards make up the whole, of which Missing were not searched; 0 for a search that is
	// not put together.
	Joined, Missing int

	text string // read, not made
}

func (c Coverage) String() string {
	if c.text != "" {
		return c.text
	}
	n, end := count(c.Schedules, "schedule"), "limit reached"
	if c.Stopped {
		end = "stopped"
	}
	if c.Joined > 0 {
		return c.joined(n, end)
	}
	where := ""
	if len(c.At) > 0 {
		where = ", switching at " + c.At.Classes() + " only"
	}
	if c.Refused {
		where += ", not by dpor, which cannot judge yields, NOWAIT and invariants"
	}
	if c.Shards > 1 {
		where += fmt.Sprintf(", shard %d of %d", c.Shard, c.Shards)
	}
	how := string(c.Method)
	switch {
	case c.Verdict == Violated:
		return fmt.Sprintf("violated in schedule %d, %s", c.Found, count(c.Preemptions, "preemption"))
	case c.Verdict == Exhausted:
		return fmt.Sprintf("exhausted: %s%s", n, where)
	case c.Method == Bound && c.Preemptions >= 0:
		how = fmt.Sprintf("preemptions <= %d", c.Preemptions)
	case c.Method == Bound:
		how = "not all without preemptions"
	case slices.Contains([]Method{Random, PCT, POS, Portfolio}, c.Method):
		how = fmt.Sprintf("sampled by %s, seed %d", c.Method, c.Seed)
	}
	return fmt.Sprintf("no violation in %s (%s, %s%s)", n, how, end, where)
}

// joined is String of a search that is put together of shards.
func (c Coverage) joined(n, end string) string {
	switch {
	case c.Verdict == Violated:
		return fmt.Sprintf("violated, %s, in shard %d of %d", count(c.Preemptions, "preemption"), c.Shard, c.Joined)
	case c.Missing > 0:
		return fmt.Sprintf("no violation in %s (%d of %d shards missing)", n, c.Missing, c.Joined)
	case c.Verdict == Exhausted:
		return fmt.Sprintf("exhausted: %s in %d shards", n, c.Joined)
	case c.Preemptions >= 0:
		end = fmt.Sprintf("preemptions <= %d, %s", c.Preemptions, end)
	}
	return fmt.Sprintf("no violation in %s of %d shards (%s)", n, c.Joined, end)
}

// MarshalText makes the text form.
func (c Coverage) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the text form.
func (c *Coverage) UnmarshalText(b []byte) error {
	*c = Coverage{text: string(b)}
	return nil
}

// count is n things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
