package scenario

import (
	"os"
	"strings"
	"testing"
	"time"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/need"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The truncate race of seed 002 (labs/reference 1.3): as posted the truncate is lost, with the wait
// first it is not. The schedule is the shortest there is: one preemption.
func TestTruncateRace(t *testing.T) {
	s, err := Lookup("truncate-race")
	must(t, err)
	r, err := Run(s, policy.MustParse("unlocked"), Options{})
	must(t, err)
	t.Logf("%+v", r)
	if r.Verdict != explore.Violated || r.Preemptions != 1 || r.Schedules > 200 {
		t.Fatalf("%+v", r)
	}
	tr, err := Replay(s, policy.MustParse("unlocked"), r.Schedule, false)
	must(t, err)
	if tr.Violating < 0 || tr.Steps[tr.Violating].What.String() != "change i_size" {
		t.Errorf("the violation is shown at step %d", tr.Violating)
	}
	start := time.Now()
	r, err = Run(s, policy.MustParse("unlocked-drain"), Options{Config: func(c *explore.Config) { c.Time = 20 * time.Second }})
	must(t, err)
	t.Logf("%+v %v", r, time.Since(start))
	if r.Verdict == explore.Violated {
		t.Fatalf("%+v", r)
	}
}

// What is wrong begins with a sentence that somebody understands who has read nothing of orders and
// cycles: which operation has returned, and which bytes are there. The proof follows.
func TestPlain(t *testing.T) {
	for _, c := range []struct{ scenario, policy, want string }{
		{"truncate-race", "unlocked", "truncate 2 to 4K has returned, yet at the end bytes [4K, 8K) are the initial content\n"},
		{"two-writers-truncate", "unlocked", "truncate 3 to 2K has returned, yet at the end bytes [4K, 12K) are the initial content\n"},
		{"two-writers-same", "unlocked", "at the end bytes [0, 32K) are those of write 2, and bytes [32K, 36K) are those of write 1: neither came before the other as a whole\n"},
		{"two-appends", "locked+WRONG_STALE_ISIZE", "write 1 [2K, 6K) has returned, yet at the end bytes [2K, 4K) are zeroes\n"},
	} {
		s, err := Lookup(c.scenario)
		must(t, err)
		r, err := Run(s, policy.MustParse(c.policy), Options{})
		must(t, err)
		if !strings.HasPrefix(r.Violation.String(), c.want) || !strings.Contains(r.Violation.String(), "\nat the end: no order explains this (") {
			t.Errorf("%s under %s: %s\nwant first %s", c.scenario, c.policy, r.Violation, c.want)
		}
	}
}

// What was kept is told with the order that explains it: who sees "kept" can check it. There is one
// for each file, and none where something is violated.
func TestKeptSaysTheOrder(t *testing.T) {
	for _, c := range []struct{ scenario, schedule, want string }{
		{"truncate-race", "", "\nthis order of the operations explains every byte: write 1, truncate 2"},
		{"truncate-race", "4:1", "\nthis order of the operations explains every byte: truncate 2, write 1"},
		{"log-rename-victim", "", "\nthis order of the operations explains every byte of /file: write 1" +
			"\nthis order of the operations explains every byte of /second: write 3"},
	} {
		s, err := Lookup(c.scenario)
		must(t, err)
		tr, err := Replay(s, policy.MustParse("unlocked"), c.schedule, false)
		must(t, err)
		if have := tr.Kept(); tr.Kind != explore.OK || have != "kept: nothing was violated in this schedule"+c.want {
			t.Errorf("%s %q: %s %s\nwant %s", c.scenario, c.schedule, tr.Kind, have, c.want)
		}
	}
	// an order explains what is in memory, and after a crash the file is wrong
	s, err := Lookup("direct-log")
	must(t, err)
	p := policy.MustParse("fsync-5.17+WRONG_LOG_UNWRITTEN")
	r, err := Run(s, p, Options{})
	must(t, err)
	tr, err := Replay(s, p, r.Schedule, false)
	must(t, err)
	if tr.Kind == explore.OK || tr.Orders != nil {
		t.Errorf("%s: %v", tr.Kind, tr.Orders)
	}
}

// A file system that was put back is one that was just opened: after thousands of executions, many
// of them given up in the middle, every scenario takes the same steps as on a fresh one, and ends
// with the same state.
func TestRestore(t *testing.T) {
	need.Long(t)
	for _, s := range All() {
		cfg, err := s.Config()
		must(t, err)
		p := policy.MustParse("unlocked")
		fresh, err := s.Program(p, true)
		must(t, err)
		want := explore.Replay(cfg, "", fresh)
		devs, err := s.prepare()
		must(t, err)
		o, n := s.open(devs, p), 0
		prog := func(w *explore.World) { n++; o.start(s, w, p, s.rule(p, true), true) }
		c := cfg
		c.Method, c.All, c.NoShrink, c.Schedules = explore.Random, true, true, 200
		explore.Run(c, prog)
		c.Method = explore.Bound // many of these are cut off in the middle
		explore.Run(c, prog)
		got := explore.Replay(cfg, "", prog)
		if n < 200 || len(got.Steps) != len(want.Steps) {
			t.Fatalf("%s: %d runs, %d steps want %d (%v %s)", s.Name, n, len(got.Steps), len(want.Steps), got.Verdict, got.Violation)
		}
		for i := range got.Steps {
			if got.Steps[i] != want.Steps[i] || strings.Join(got.Details[i].State, " ") != strings.Join(want.Details[i].State, " ") {
				t.Fatalf("%s: step %d is %+v %v, want %+v %v", s.Name, i, got.Steps[i], got.Details[i].State, want.Steps[i], want.Details[i].State)
			}
		}
	}
}

// A race on plain data of the write path is found by what orders the accesses, though both hold
// locks and though no oracle can see it: a page that is zeroed while the device may read it,
// disk_i_size set without its lock. The report names the data, the locks and the code of both
// accesses.
func TestDataRaces(t *testing.T) {
	for _, c := range []struct {
		scenario, policy string
		want             []string
	}{
		{"grow-writeback", "locked+WRONG_ZERO_UNDER_WRITEBACK", []string{"writes page 0 of inode 257 in step", "(holding i_rwsem, page 0)", "reads in step", "setsize.zeroTail", "writeback.endWrite"}},
		{"grow-writeback", "locked+WRONG_DISK_ISIZE_UNLOCKED", []string{"writes disk_i_size in step", "(holding i_rwsem)", "(holding page 0, extent [0, 4K)", "setsize.grow", "inode.(*Inode).FollowSize"}},
	} {
		s, err := Lookup(c.scenario)
		must(t, err)
		for _, m := range []explore.Method{explore.Bound, explore.DPOR, explore.State, explore.PCT} {
			r, err := Run(s, policy.MustParse(c.policy), Options{Config: func(x *explore.Config) { x.Method, x.Schedules = m, 30_000 }})
			must(t, err)
			if r.Kind != explore.KindRace {
				t.Fatalf("%s under %s, %s: %s %s", c.scenario, c.policy, m, r.Bound, r.Violation)
			}
			for _, want := range c.want {
				if m == explore.Bound && !strings.Contains(r.Violation.String(), want) {
					t.Errorf("%s: no %q in %s", c.scenario, want, r.Violation)
				}
			}
		}
	}
}

// A file that is cut to less than a page and grown again: writeback of the page puts its bytes into
// the tree, and made the size on disk what i_size had been before. A grow in between was lost at
// the next mount. It shows between two steps of a transaction, which are no switch points of the
// scenario.
func TestGrowWhileInline(t *testing.T) {
	s, err := Lookup("grow-writeback")
	must(t, err)
	r, err := Run(s.With([]string{"i_rwsem", "page", "extent", "trans_lock"}, false), policy.MustParse("locked"), Options{Config: func(x *explore.Config) { x.Schedules = 500 }})
	must(t, err)
	if r.Verdict == explore.Violated {
		t.Errorf("%s\n%s", r.Violation, r.Replay)
	}
}

// TestDirectKept searches what keeps direct requests apart from their neighbours: a buffered
// writer, a log and readahead (labs/reference 9.2, numbers 4, 10 and 14), a reader, truncates, and
// what is written in place apart from a commit. It is TestMatrix in small: a few schedules of each
// break a planted fault. The matrix has no cell of an fsync of plain writes that commits, because
// all its presets write a log: here are three.
func TestDirectKept(t *testing.T) {
	for _, c := range []struct {
		scenario, policy string
		method           explore.Method
	}{
		{"direct-buffered", "locked", explore.Bound},
		{"direct-log", "fsync-5.17", explore.Bound},
		{"direct-readahead", "modern", explore.Bound},
		{"direct-reader", "modern", explore.Bound},
		{"direct-read-truncate", "locked", explore.Bound},
		// a read that looks before it counts needs four preemptions
		{"direct-read-truncate", "unlocked-drain", explore.DPOR},
		{"direct-truncate", "locked", explore.Bound},
		{"direct-grow", "modern", explore.Bound},
		{"direct-fsync", "fsync-commit", explore.Bound},
		{"nocow-fsync", "fsync-commit", explore.Bound},
		{"fsync-writeback", "fsync-commit", explore.Bound},
	} {
		t.Run(c.scenario+"/"+c.policy, func(t *testing.T) {
			s, err := Lookup(c.scenario)
			must(t, err)
			r, err := Run(s, policy.MustParse(c.policy), Options{Config: func(x *explore.Config) { x.Method, x.Schedules = c.method, 3_000 }})
			must(t, err)
			if r.Verdict == explore.Violated || r.Schedules < 50 {
				t.Errorf("%s under %s: %s: %s", c.scenario, c.policy, r.Bound, r.Violation)
			}
		})
	}
}

// The write path with the wait first is proved for one writer and for two, and the proof is quick:
// tens of thousands of schedules per second (the number is in the log, not in the verdict).
func TestDrainProved(t *testing.T) {
	need.Long(t)
	for _, name := range []string{"truncate-race", "two-writers-truncate"} {
		if testing.Short() && name != "truncate-race" {
			continue
		}
		s, err := Lookup(name)
		must(t, err)
		r, err := Run(s, policy.MustParse("unlocked-drain"), Options{})
		must(t, err)
		if r.Verdict != explore.Exhausted {
			t.Errorf("%s: %s", name, r.Bound)
		}
		t.Logf("%s: %s, %.0f schedules/s", name, r.Bound, float64(r.Schedules)/r.Seconds)
	}
}

// TestFar: a scenario 32 MiB into a file ends as it does at the beginning: the same schedule breaks
// it, and what is kept stays kept, with the crash images and the second reading of Deep.
func TestFar(t *testing.T) {
	for _, name := range []string{"truncate-race", "two-writers-same", "two-appends", "writer-punch", "direct-buffered", "mmap-source", "truncate-fsync", "nocow-snapshot"} {
		near, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, pol := range []string{"locked", "unlocked"} {
			run := func(s *Scenario) Result {
				x, err := Run(s.With(nil, true), policy.MustParse(pol), Options{Config: func(c *explore.Config) { c.Schedules = 40 }})
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			have, want := run(near.Far(name+"-far", 32<<20)), run(near)
			if have.Verdict != want.Verdict || have.Schedule != want.Schedule || have.Schedules != want.Schedules {
				t.Errorf("%s under %s, far: %v by %q in %d schedules, want %v by %q in %d: %v", name, pol, have.Verdict, have.Schedule, have.Schedules,
					want.Verdict, want.Schedule, want.Schedules, have.Violation)
			}
		}
	}
}

// The third question of seed 002's thread: can stable pages be avoided altogether? Writeback that
// copies keeps what locked keeps, where a page is changed while the device has it, dirtied again
// before its ordered extent has ended, and cut off (labs/reference 1.10).
func TestBounce(t *testing.T) {
	list := []*Scenario{{
		Name: "bounce-again", About: "a page is dirtied and written back again before its ordered extent has ended",
		File:   File{Size: 4 * k, Cached: []oracle.Range{{Lo: 0, Hi: 4 * k}}, Dirty: []oracle.Range{{Lo: 0, Hi: 4 * k}}},
		Tasks:  []Task{{Name: "writeback", Ops: []Op{Flush()}}, {Name: "writer", Ops: []Op{Write(0, 4*k), Flush()}}},
		Switch: []string{"page", "stable_page", "ordered_extent", "workqueue_idle", "device"}, Rule: calls, Deep: true,
	}}
	for _, name := range []string{"stable-pages", "ordered-retry", "page-state-wait", "append-writeback", "grow-writeback", "truncate-writeback", "nocow-rewrite",
		"fsync-writeback", "reader-writeback"} {
		s, err := Lookup(name)
		must(t, err)
		list = append(list, s)
	}
	for _, s := range list {
		r, err := Run(s, policy.MustParse("bounce"), Options{Config: func(c *explore.Config) { c.Schedules = 1000 }})
		must(t, err)
		if r.Verdict == explore.Violated || r.Schedules < 3 {
			t.Errorf("%s: %d schedules, %q: %v", s.Name, r.Schedules, r.Schedule, r.Violation)
		}
	}
}
