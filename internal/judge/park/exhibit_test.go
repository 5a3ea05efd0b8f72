package park

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Each exhibit breaks the engine by its schedule, in the way that the museum says, and is one that
// tasks of Linux can do. That there are kernels on both sides, or none that has mended it, is the
// table's to say.
func TestExhibits(t *testing.T) {
	for i := range Exhibits {
		e := &Exhibits[i]
		x := e.Museum()
		s, err := scenario.Lookup(x.Scenario)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Calls(s); err != nil {
			t.Errorf("exhibit %d: %v", e.Number, err)
		}
		tr, err := scenario.Replay(s, policy.MustParse(x.Broken), e.Schedule, false)
		if err != nil || !slices.Contains(x.Kinds, tr.Kind) || tr.Schedule != e.Schedule {
			t.Errorf("exhibit %d, schedule '%s': %q by '%s', %v, want one of %q", e.Number, e.Schedule, tr.Kind, tr.Schedule, err, x.Kinds)
		}
		if len(e.Broken) == 0 || len(list(x.Number)) != 1 {
			t.Errorf("exhibit %d breaks in %v, and is there %d times", e.Number, e.Broken, len(list(x.Number)))
		}
	}
}

func list(number int) (found []int) {
	for i, x := range scenario.Museum {
		if x.Number == number {
			found = append(found, i)
		}
	}
	return found
}

// Where the engine breaks, its tasks do not end: the one that breaks stands where it began to, and
// is let go last; another one stands before its next place, of which the trace knows nothing.
func TestOrderBroken(t *testing.T) {
	for _, c := range []struct{ scenario, policy, schedule, victims, want string }{
		{"nowait-stable", "nowait-6.1+NOWAIT_TRY_ORDERED", "8:1", "[{0 0}]", `
0 "the step with which it breaks" generic_write_checks
1 "its next step" extent_write_cache_pages find_lock_delalloc_range`},
		{"nowait-dio-range", "nowait-5.8", "10:1,12:0", "[{0 0}]", `
0 "change i_dio_count" __iomap_dio_rw
1 "its next step" extent_fiemap btrfs_get_extent_fiemap
0 "the step with which it breaks" btrfs_dio_iomap_begin`},
		{"direct-mapped", "modern!DIO_NOFAULT", "", "[{0 0}]", `
0 "the step with which it breaks" btrfs_inode_lock btrfs_dio_iomap_begin`},
		// this one ends
		{"nowait-stable", "nowait-strict", "8:1", "[]", `
0 "tryPages: trylock page 0" generic_write_checks btrfs_inode_unlock
1 "" extent_write_cache_pages find_lock_delalloc_range btrfs_run_delalloc_range gate
0 "" gate`},
	} {
		tr, s := traced(t, c.scenario, c.policy, c.schedule)
		var b strings.Builder
		for _, x := range order(tr, s, every) {
			fmt.Fprintf(&b, "\n%d %q %s", x.Task, x.Before, strings.Join(x.Places, " "))
		}
		if have := fmt.Sprint(victims(tr, s)); b.String() != c.want || have != c.victims {
			t.Errorf("%s '%s' becomes %s\nvictims %s, want %s\n%s", c.scenario, c.schedule, b.String(), have, c.victims, c.want)
		}
	}
}

// A violation is Linux's when Linux says how, and an end when it is the engine's.
func TestBreaks(t *testing.T) {
	for _, c := range []struct {
		name   string
		x      Replayed
		want   bool
		prints string
	}{
		{"the same end", Replayed{}, true, "the same end in Linux"},
		{"another end", Replayed{Differences: []string{"a byte"}}, false, "DIFFERENT: a byte"},
		{"refused", Replayed{Refused: "task 0 waits"}, false, "refused by Linux: task 0 waits"},
		{"sleeps", Replayed{Violation: "may sleep", Broken: []string{"task 0 sleeps in f"}}, true, "! so does Linux: task 0 sleeps in f"},
		{"does not sleep", Replayed{Violation: "may sleep"}, false, "Linux does not"},
	} {
		var b strings.Builder
		if err := c.x.WriteText(&b, []string{"writer"}, 80); err != nil || c.x.Breaks() != c.want || !strings.Contains(b.String(), c.prints) {
			t.Errorf("%s: breaks %v, want %v, %v, prints %s", c.name, c.x.Breaks(), c.want, err, b.String())
		}
	}
}

// Of tasks that wait for each other all are victims.
func TestVictims(t *testing.T) {
	s, err := scenario.Lookup("two-writers-overlap")
	if err != nil {
		t.Fatal(err)
	}
	tr := &scenario.Trace{Kind: explore.KindDeadlock, Own: 2, Steps: []scenario.TraceStep{{Task: 0, Kind: "call"}, {Task: 1, Kind: "call"}}}
	if have := fmt.Sprint(victims(tr, s)); have != "[{0 0} {1 0}]" {
		t.Errorf("victims %s", have)
	}
	tr.Steps[1].Notes = []scenario.Note{{Event: scenario.Returns, Op: 2}}
	if have := fmt.Sprint(victims(tr, s)); have != "[{0 0}]" {
		t.Errorf("victims %s", have)
	}
}
