package park

import (
	"slices"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

// What is recorded is of the engine as it is, and says of the exhibits what their table says.
// After a change of the engine's steps the kernels are recorded again.
func TestRecorded(t *testing.T) {
	for _, v := range RecordedVersions {
		r, err := Recorded(v)
		if err != nil {
			t.Fatal(err)
		}
		if r.Version != v || len(r.Runs) < 100 {
			t.Errorf("Linux %s: version %s, %d runs", v, r.Version, len(r.Runs))
		}
		refused := 0
		for _, x := range r.Runs {
			s, err := scenario.Lookup(x.Scenario)
			if err != nil {
				t.Fatal(err)
			}
			l, err := NewPlan(s, policy.MustParse(x.Policy), x.Schedule, func(string) bool { return true })
			if err != nil || l.Trace.Schedule != x.Schedule || l.Trace.Violation.What != x.Violation || l.Engine.Size != x.Engine.Size ||
				!slices.Equal(l.Engine.Bytes, x.Engine.Bytes) || !slices.Equal(l.Engine.Errors, x.Engine.Errors) {
				t.Errorf("Linux %s, %s '%s' under %s was recorded of another engine: %+v now, %v", v, x.Scenario, x.Schedule, x.Policy, l.Engine, err)
			}
			if x.Outcome() == Refused {
				refused++
				if x.Held == nil || len(x.Held.Stack) == 0 {
					t.Errorf("Linux %s, %s '%s' refuses the order, and says not where", v, x.Scenario, x.Schedule)
				}
			}
		}
		if refused < 10 {
			t.Errorf("Linux %s refuses %d orders", v, refused)
		}
		for i := range Exhibits {
			e := &Exhibits[i]
			s, p, err := e.Asks()
			if err != nil {
				t.Fatal(err)
			}
			x, err := r.Find(s, p, e.Schedule)
			if err != nil || x == nil || (x.Outcome() == Broken) != slices.Contains(e.Broken, v) {
				t.Errorf("exhibit %d in Linux %s: %+v, %v, the table has %v", e.Number, v, x, err, e.Broken)
			}
		}
	}
	if _, err := Recorded("4.4"); err == nil {
		t.Error("4.4 is recorded")
	}
}

// A run is found by any schedule that leads the tasks in the same way, under the same policy only.
func TestFind(t *testing.T) {
	r, err := Recorded("6.12")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Lookup("truncate-race")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		policy, schedule, want string
	}{
		{"unlocked", "20:1", "20:1"},
		{"unlocked", "21:1", "20:1"},
		{"unlocked", "22:1", "22:1"},
		{"unlocked", "11:1,13:0", ""},
		{"locked", "20:1", ""},
	} {
		x, err := r.Find(s, policy.MustParse(c.policy), c.schedule)
		have := ""
		if x != nil {
			have = x.Schedule
		}
		if err != nil || have != c.want || x != nil && (x.As == "") != (c.schedule == c.want) {
			t.Errorf("'%s' under %s: found '%s', %v, want '%s'", c.schedule, c.policy, have, err, c.want)
		}
	}
	// The same places under another policy, where nothing breaks: the engine's end may be another.
	d, err := scenario.Lookup("direct-writers")
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, name := range []string{"linux-6.1", "linux-6.12", "modern"} {
		p := policy.MustParse(name)
		have, err := Order(d, p, "7:1")
		want, other := Order(d, policy.MustParse("linux-6.18"), "7:1")
		if err != nil || other != nil || have != want {
			continue
		}
		same++
		if x, err := r.Find(d, p, "7:1"); x != nil || err != nil {
			t.Errorf("'7:1' under %s: found that under %s, %v", name, x.Policy, err)
		}
	}
	if same == 0 {
		t.Error("no other policy has the same places")
	}
	b, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ReadRecording(b); err != nil || len(again.Runs) != len(r.Runs) || !again.Runs[3].Agrees(r.Runs[3]) {
		t.Errorf("packed and read: %v", err)
	}
	if _, err := ReadRecording(b[:len(b)/2]); err == nil {
		t.Error("a recording that is cut is read")
	}
}
