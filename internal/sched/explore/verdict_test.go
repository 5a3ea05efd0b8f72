package explore_test

import (
	"encoding/json"
	"testing"

	"btrlab/internal/sched/explore"
)

// A violation is reported with its kind once, and what is read back from JSON prints the same.
func TestViolationText(t *testing.T) {
	frame := explore.Frame{Func: "p.f", File: "f.go", Line: 7}
	for _, tt := range []struct {
		v                      explore.Violation
		line, report, violated string
	}{
		{explore.Violation{}, "", "", "violated (): "},
		{explore.Violation{Kind: explore.KindDeadlock, Named: true, What: "a waits for b", More: "a holds c"},
			"a waits for b", "deadlock: a waits for b\na holds c", "violated: deadlock: a waits for b\na holds c"},
		{explore.Violation{Kind: explore.KindPanic, Lead: "task 0 a: panic", What: "oh", More: "more", At: explore.Stack{frame}},
			"task 0 a: panic: oh", "task 0 a: panic: oh\nmore\np.f f.go:7", "violated (panic): task 0 a: panic: oh\nmore\np.f f.go:7"},
		{explore.Violation{Kind: explore.KindRace, Named: true, What: "both write", Sides: []explore.Side{{Task: "1 b", Step: 3, Stack: explore.Stack{frame}}, {Task: "0 a", Step: 2}}},
			"both write", "data race: both write\ntask 1 b, step 3:\np.f f.go:7\ntask 0 a, step 2:",
			"violated: data race: both write\ntask 1 b, step 3:\np.f f.go:7\ntask 0 a, step 2:"},
	} {
		if got := tt.v.Line(); got != tt.line {
			t.Errorf("line: have %q want %q", got, tt.line)
		}
		if got := tt.v.String(); got != tt.report {
			t.Errorf("report: have %q want %q", got, tt.report)
		}
		if got := tt.v.Violated(); got != tt.violated {
			t.Errorf("have %q want %q", got, tt.violated)
		}
		var again explore.Violation
		if throughJSON(t, tt.v, &again); again.String() != tt.report {
			t.Errorf("through JSON: have %q want %q", again.String(), tt.report)
		}
	}
}

// What a search is worth, in the words that people read, and the same words after JSON.
func TestCoverageText(t *testing.T) {
	at := explore.Switches{"i_rwsem", "page"}
	for want, c := range map[string]explore.Coverage{
		"violated in schedule 7, 1 preemption":                                      {Verdict: explore.Violated, Found: 7, Preemptions: 1},
		"exhausted: 1 schedule":                                                     {Verdict: explore.Exhausted, Schedules: 1},
		"exhausted: 9 schedules, switching at i_rwsem, page only, shard 1 of 3":     {Verdict: explore.Exhausted, Schedules: 9, At: at, Shard: 1, Shards: 3},
		"no violation in 9 schedules (preemptions <= 2, limit reached)":             {Verdict: explore.Bounded, Method: explore.Bound, Schedules: 9, Preemptions: 2},
		"no violation in 9 schedules (not all without preemptions, stopped)":        {Verdict: explore.Bounded, Method: explore.Bound, Schedules: 9, Preemptions: -1, Stopped: true},
		"no violation in 9 schedules (sampled by pct, seed 4, limit reached)":       {Verdict: explore.Bounded, Method: explore.PCT, Schedules: 9, Seed: 4},
		"no violation in 9 schedules (dpor, limit reached, switching at page only)": {Verdict: explore.Bounded, Method: explore.DPOR, Schedules: 9, At: at[1:]},
		"violated, 2 preemptions, in shard 1 of 4":                                  {Verdict: explore.Violated, Preemptions: 2, Shard: 1, Joined: 4},
		"exhausted: 9 schedules in 4 shards":                                        {Verdict: explore.Exhausted, Schedules: 9, Joined: 4},
		"no violation in 9 schedules (1 of 4 shards missing)":                       {Verdict: explore.Bounded, Schedules: 9, Joined: 4, Missing: 1},
		"no violation in 9 schedules of 4 shards (preemptions <= 1, limit reached)": {Verdict: explore.Bounded, Schedules: 9, Preemptions: 1, Joined: 4},
		"no violation in 9 schedules of 4 shards (stopped)":                         {Verdict: explore.Bounded, Schedules: 9, Preemptions: -1, Joined: 4, Stopped: true},
	} {
		if got := c.String(); got != want {
			t.Errorf("have %q want %q", got, want)
		}
		var again explore.Coverage
		if throughJSON(t, c, &again); again.String() != want {
			t.Errorf("through JSON: have %q want %q", again.String(), want)
		}
	}
}

// Switch points that were read from a file are those that were written, so that parts of a search
// can be compared.
func TestSwitchesText(t *testing.T) {
	for want, s := range map[string]explore.Switches{
		"": nil,
		"page; other classes run on unless they must wait":          {"page"},
		"i_rwsem, page; other classes run on unless they must wait": {"i_rwsem", "page"},
	} {
		if got := s.String(); got != want {
			t.Errorf("have %q want %q", got, want)
		}
		var again explore.Switches
		if throughJSON(t, s, &again); again.Classes() != s.Classes() || len(again) != len(s) {
			t.Errorf("through JSON: have %q want %q", again, s)
		}
	}
	var s explore.Switches
	if err := json.Unmarshal([]byte(`"page"`), &s); err == nil {
		t.Errorf("%q is read from text that String does not print", s)
	}
}

func throughJSON(t *testing.T, from, to any) {
	t.Helper()
	b, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		t.Error(err)
	}
}
