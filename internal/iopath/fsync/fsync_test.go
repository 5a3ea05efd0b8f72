package fsync_test

import (
	"testing"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/fstest"
)

const k = 1024

// An fsync comes while somebody else commits. An inode that the commit has in hand looks clean
// before its item is in the tree, and one that is changed without a transaction may be dirtied when
// the commit has written its items and is not durable yet. Both times fsync has to wait for a
// commit that has what it promises, or to log it: after a crash at its return the file has the size
// and the bytes of before.
func TestFsyncDuringCommit(t *testing.T) {
	all := []oracle.Range{{Lo: 0, Hi: 8 * k}}
	commit := scenario.Task{Name: "sync", Ops: []scenario.Op{scenario.Sync()}}
	for _, s := range []*scenario.Scenario{
		{
			Name:  "truncate",
			File:  scenario.File{Size: 8 * k, Cached: all},
			Tasks: []scenario.Task{{Name: "truncate", Ops: []scenario.Op{scenario.Truncate(4 * k), scenario.Fsync()}}, commit},
		},
		{
			Name:  "grow",
			File:  scenario.File{Size: 8 * k, Cached: all},
			Tasks: []scenario.Task{{Name: "grow", Ops: []scenario.Op{scenario.Truncate(12 * k), scenario.Fsync()}}, commit},
		},
		{
			// Inside the last block, so that it goes in place and no transaction is joined.
			Name:  "append in place",
			File:  scenario.File{Size: 6 * k, Nocow: true, Cached: []oracle.Range{{Lo: 0, Hi: 6 * k}}},
			Tasks: []scenario.Task{{Name: "writer", Ops: []scenario.Op{scenario.Write(6*k, k), scenario.Fsync()}}, commit},
		},
		{
			Name:  "append in place, sync",
			File:  scenario.File{Size: 6 * k, Nocow: true, Cached: []oracle.Range{{Lo: 0, Hi: 6 * k}}},
			Tasks: []scenario.Task{{Name: "writer", Ops: []scenario.Op{scenario.Write(6*k, k), scenario.Sync()}}, commit},
		},
	} {
		for p, n := range map[string]int{"locked!FSYNC_LOG": 1500, "locked": 400} {
			t.Run(s.Name+", "+p, func(t *testing.T) {
				s.Switch = []string{"i_rwsem", "inode_mu", "trans_lock", "tree_fs", "tree_root", "ordered_extent"}
				s.Rule = oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesWith}
				s.Deep = true
				r, err := scenario.Run(s, policy.MustParse(p), scenario.Options{Config: func(c *explore.Config) {
					c.Preemptions, c.Schedules = 2, fstest.Schedules(n)
				}})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%v after %d schedules, %.1f s", r.Verdict, r.Schedules, r.Seconds)
				if r.Verdict == explore.Violated {
					t.Errorf("%v after %d schedules: %s: %s; schedule %q", r.Verdict, r.Schedules, r.Kind, r.Violation, r.Schedule)
				}
			})
		}
	}
}

// Two tasks write and fsync one file, and a third one commits: syncs of the log are shared, a
// commit frees the log between two of them, and the superblock of a log must wait for that of the
// commit before it. Every time the power goes at the return of an fsync, the file has what was
// written before it.
func TestFsyncLogSchedules(t *testing.T) {
	all := []oracle.Range{{Lo: 0, Hi: 8 * k}}
	commit := scenario.Task{Name: "sync", Ops: []scenario.Op{scenario.Sync()}}
	write := func(name string, off int64) scenario.Task {
		return scenario.Task{Name: name, Ops: []scenario.Op{scenario.Write(off, k), scenario.Fsync()}}
	}
	for _, s := range []*scenario.Scenario{
		{Name: "fsync, commit", Tasks: []scenario.Task{write("a", 0), commit}},
		{Name: "fsync, fsync", Tasks: []scenario.Task{write("a", 0), write("b", 4*k)}},
		{Name: "fsync, append, commit", Tasks: []scenario.Task{write("a", 0), write("b", 8*k), commit}},
		{Name: "fsync, truncate", Tasks: []scenario.Task{write("a", 0), {Name: "truncate", Ops: []scenario.Op{scenario.Truncate(4 * k), scenario.Fsync()}}}},
	} {
		t.Run(s.Name, func(t *testing.T) {
			s.File = scenario.File{Size: 8 * k, Cached: all}
			s.Switch = []string{"i_rwsem", "trans_lock", "log_mutex", "log_root_mutex", "log_wait", "log_super_mutex", "log_inode"}
			s.Rule = oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesWith}
			s.Deep = true
			r, err := scenario.Run(s, policy.MustParse("locked"), scenario.Options{Config: func(c *explore.Config) {
				c.Preemptions, c.Schedules = 2, fstest.Schedules(400)
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v after %d schedules, %.1f s", r.Verdict, r.Schedules, r.Seconds)
			if r.Verdict == explore.Violated {
				t.Errorf("%v after %d schedules: %s: %s; schedule %q", r.Verdict, r.Schedules, r.Kind, r.Violation, r.Schedule)
			}
		})
	}
}
