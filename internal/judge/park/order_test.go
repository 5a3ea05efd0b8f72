package park

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

func every(string) bool { return true }

func traced(t *testing.T, name, pol, schedule string) (*scenario.Trace, *scenario.Scenario) {
	t.Helper()
	s, err := scenario.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := scenario.Replay(s, policy.MustParse(pol), schedule, false)
	if err != nil {
		t.Fatal(err)
	}
	return tr, s
}

// A schedule becomes places of Linux: the writer stands where it is to make its pages dirty, the
// truncate waits for the inode, and each does the rest. Places that a kernel does not have are left
// out.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		schedule string
		has      func(string) bool
		want     string
	}{
		{"13:1", every, `
0 waits=false "iSizeWrite: read i_size" btrfs_inode_lock generic_write_checks __filemap_get_folio_mpol __filemap_get_folio_mpol lock_and_cleanup_extent_if_need btrfs_dirty_folio
1 waits=true "Truncate: lock i_rwsem" do_truncate btrfs_setattr
0 waits=false "" btrfs_inode_unlock gate
1 waits=false "" btrfs_setattr truncate_setsize btrfs_invalidate_folio btrfs_invalidate_folio btrfs_invalidate_folio inode_dio_wait btrfs_start_transaction btrfs_lock_extent_bits gate`},
		// between the queue for a lock and the lock there is no place
		{"7:1", every, `
0 waits=false "lockFile: queue for i_rwsem" btrfs_inode_lock
1 waits=false "" do_truncate btrfs_setattr truncate_setsize btrfs_invalidate_folio btrfs_invalidate_folio btrfs_invalidate_folio inode_dio_wait btrfs_start_transaction btrfs_lock_extent_bits gate
0 waits=false "" generic_write_checks __filemap_get_folio_mpol __filemap_get_folio_mpol btrfs_dirty_folio btrfs_inode_unlock gate`},
		{"13:1", func(f string) bool { return f == "do_truncate" || f == "btrfs_dirty_pages" }, `
0 waits=false "iSizeWrite: read i_size" btrfs_dirty_pages
1 waits=true "Truncate: lock i_rwsem" do_truncate gate
0 waits=false "" gate
1 waits=false "" gate`},
	} {
		tr, s := traced(t, "truncate-race", "linux-6.1", c.schedule)
		var b strings.Builder
		for _, x := range order(tr, s, c.has) {
			fmt.Fprintf(&b, "\n%d waits=%v %q %s", x.Task, x.Waits, x.Before, strings.Join(x.Places, " "))
		}
		if b.String() != c.want {
			t.Errorf("%s becomes %s\nwant %s", c.schedule, b.String(), c.want)
		}
	}
}

// Steps before which nothing of Linux begins are done with the one before, and are named.
func TestOrderMerged(t *testing.T) {
	tr, s := traced(t, "truncate-race", "linux-6.1", "14:1")
	x := order(tr, s, every)[0]
	if x.Before != "finishRange: unlock extent [8K, 16K)" || !slices.Equal(x.Merged, []string{x.Before, "dropPages: unlock page 2", "dropPages: unlock page 3"}) {
		t.Errorf("%+v", x)
	}
}

// Each point of the map is a step of the engine's, in some scenario, under the policy of some era:
// a step whose name has changed has no place any more.
func TestPoints(t *testing.T) {
	used := map[*point]bool{}
	for _, s := range scenario.All() {
		if _, err := Calls(s); err != nil {
			continue
		}
		for _, pol := range []string{"linux-5.10", "linux-6.1", "linux-6.18"} {
			tr, err := scenario.Replay(s, policy.MustParse(pol), "", false)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range s.Tasks {
				for i := range tr.Steps {
					for _, o := range task.Ops {
						if p, _ := find(o.Kind, stepText(&tr.Steps[i]), every); p != nil {
							used[p] = true
						}
					}
				}
			}
		}
	}
	for i := range points {
		if !used[&points[i]] {
			t.Errorf("no scenario has the step %q of a %v", points[i].step, points[i].op)
		}
	}
}

// A drawn schedule is one that the engine runs as it is, with as many switches as were asked for,
// and the same for the same seed.
func TestDraw(t *testing.T) {
	s, err := scenario.Lookup("truncate-race")
	if err != nil {
		t.Fatal(err)
	}
	p := policy.MustParse("linux-6.18")
	drawn := map[string]bool{}
	for seed := range uint64(20) {
		for range 2 {
			schedule, err := Draw(s, p, rand.New(rand.NewPCG(seed, 0)), 2)
			if err != nil {
				t.Fatal(err)
			}
			drawn[schedule] = true
			if tr, err := scenario.Replay(s, p, schedule, false); err != nil || tr.Schedule != schedule {
				t.Errorf("%q is not a schedule: %v", schedule, err)
			}
		}
	}
	if len(drawn) < 10 || len(drawn) > 20 {
		t.Errorf("%d schedules of 20 seeds, each drawn twice", len(drawn))
	}
}

// A difference of each kind is said; an error of the engine's has more words than Linux's.
func TestDifferences(t *testing.T) {
	end := func() *Ending {
		return &Ending{Size: 4096, Bytes: []oracle.Seen{{Lo: 0, Hi: 4096, From: 1}}, Errors: []string{"", "write /file: no space left on device"}}
	}
	same := end()
	same.Errors[1] = "no space left on device"
	if list := differences(end(), same); list != nil {
		t.Errorf("the same: %q", list)
	}
	for want, change := range map[string]func(e *Ending){
		"4096 bytes long here and 1 in Linux": func(e *Ending) { e.Size = 1 },
		"the bytes are":                       func(e *Ending) { e.Bytes[0].From = 2 },
		`operation 1: "" here and "input`:     func(e *Ending) { e.Errors[0] = "input/output error" },
		`operation 2: `:                       func(e *Ending) { e.Errors[1] = "" },
	} {
		e := end()
		e.Errors[1] = "no space left on device"
		change(e)
		if list := differences(end(), e); len(list) != 1 || !strings.Contains(list[0], want) {
			t.Errorf("%q, want %q", list, want)
		}
	}
}

// What no task of Linux is made to do is one line.
func TestNoCall(t *testing.T) {
	for _, name := range []string{"ring-writers", "reflink-source", "direct-log"} {
		s, err := scenario.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Calls(s); err == nil || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "scenario "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
