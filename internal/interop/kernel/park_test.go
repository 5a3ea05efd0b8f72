package kernel

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/interop"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/judge/park"
	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

var parkedEvery = flag.Int("parked.every", 1, "of the scenarios that Linux can be led through, ask each N-th")

// seedScenarios are those of the five seeds that tasks of Linux can be led through: NOWAIT direct
// writes, writes without the inode's lock, fsync with a log, direct writes of sectors. Of seed 001
// none is: a ring is no system call of a task.
var seedScenarios = []string{"nowait-dio-range", "nowait-dio-writers", "nowait-dio-reader", "nowait-dio-eof", "nowait-dio-cow",
	"truncate-race", "truncate-into", "two-writers-overlap", "writer-punch", "writer-fallocate", "fsync-writer", "direct-writers", "direct-overlap",
	"unaligned-writers", "unaligned-drain"}

var parkedDraws = flag.Int("parked.draws", 2, "of each scenario of the seeds, how many schedules to draw")

// A kernel is led through schedules of the seeds' scenarios, drawn at random under the policy of
// its era: of those that it does not refuse, eight in ten have the engine's end.
func TestKernelSeeds(t *testing.T) {
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			g := newGuide(t, k, 4, time.Minute)
			own := g.drawnEnds(policy.MustParse("linux-" + k.Version))
			t.Logf("Linux %s under its policy: %v, %d hung", k.Release, own, g.hung)
			if own[park.Same]*10 < (own[park.Same]+own[park.Other])*8 {
				t.Errorf("of the schedules that are not refused %v have the engine's end", own)
			}
		})
	}
}

// drawnEnds counts how schedules end that are drawn under a policy.
func (g *guide) drawnEnds(p *policy.Policy) map[park.Outcome]int {
	ends := map[park.Outcome]int{}
	for i, name := range seedScenarios {
		s, err := scenario.Lookup(name)
		interop.Must(g.t, err)
		rng := rand.New(rand.NewPCG(2, uint64(i)))
		for n := range *parkedDraws {
			schedule, err := park.Draw(s, p, rng, 1+n%3)
			interop.Must(g.t, err)
			x := g.lead(&ask{s, p, schedule})
			if x == nil {
				continue
			}
			ends[x.Outcome()]++
			if x.Outcome() != park.Same {
				g.t.Logf("%s '%s' under %s %s: %s", name, schedule, p.Name, x.Outcome(), strings.Join(append(x.Differences, x.Refused, x.Violation), "; "))
			}
		}
	}
	return ends
}

// A kernel that is booted is led through the same steps in each of these.
func TestKernelParked(t *testing.T) {
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			byHand(t, k)
			g := newGuide(t, k, 4, time.Minute)
			g.led()
			g.refused()
		})
	}
}

// byHand parks tasks one by one, without a schedule.
func byHand(t *testing.T, k *kernels.Kernel) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*bootTime)
	defer cancel()
	program, err := guestProgram()
	interop.Must(t, err)
	image := filepath.Join(t.TempDir(), "image")
	interop.Sh(t, "truncate", "-s", "128M", image)
	m, err := park.Boot(ctx, park.Options{Kernel: k, Program: program, Args: jobs.Args("tasks"), Image: image})
	interop.Must(t, err)
	defer func() { interop.Must(t, m.Close()) }()
	parkedWrite(ctx, t, m, image)
	parkedPoints(ctx, t, m)
}

// parkedWrite parks a write where it is about to make its pages dirty. A truncate of the same file
// waits for the inode until the write is let go.
func parkedWrite(ctx context.Context, t *testing.T, m *park.Machine, image string) {
	interop.Sh(t, "mkfs.btrfs", "-q", "-f", image)
	_, err := m.Mount(ctx, "", []park.Call{{Verb: "write", File: "f", N: 16 << 10, Fill: 'a'}, {Verb: "sync", File: "f"}})
	interop.Must(t, err)
	dirty := "btrfs_dirty_pages"
	if missing, err := m.Find(ctx, []string{dirty, "btrfs_dirty_folio"}); err != nil || slices.ContainsFunc(missing, func(s string) bool { return strings.HasPrefix(s, dirty) }) {
		dirty = "btrfs_dirty_folio"
	}
	r, err := m.Start(ctx, [][]park.Call{
		{{Verb: "write", File: "f", Off: 8 << 10, N: 8 << 10, Fill: 'b'}},
		{{Verb: "truncate", File: "f", Off: 4 << 10}, {Verb: "read", File: "f", N: 8 << 10}},
	})
	interop.Must(t, err)
	interop.Must(t, r.Advance(ctx, 0, dirty))
	var held *park.Held
	if err := r.Advance(ctx, 1, "btrfs_setattr"); !errors.As(err, &held) || !slices.Contains(held.Stack, "do_truncate") {
		t.Fatalf("a truncate beside a write: %v", err)
	}
	interop.Must(t, r.Advance(ctx, 0, park.Gate))
	interop.Must(t, r.Advance(ctx, 1, "btrfs_setattr"))
	if at, gates := r.At(0); at != park.Gate || gates != 2 {
		t.Errorf("the write stands at %q, gate %d", at, gates)
	}
	results, err := r.End(ctx)
	interop.Must(t, err)
	want := bytes.Repeat([]byte{'a'}, 4<<10)
	if w, x := results[0][0], results[1]; w.N != 8<<10 || w.Errno != 0 || x[0].Errno != 0 || !bytes.Equal(x[1].Bytes, want) {
		t.Errorf("results %+v", results)
	}
	b, err := m.ReadFile(ctx, "f")
	if err != nil || !bytes.Equal(b, want) {
		t.Errorf("the file has %d bytes, %v", len(b), err)
	}
	interop.Must(t, m.Unmount(ctx))
	interop.Judged(t, image)
}

// parkedPoints holds the map of steps against the kernel: of each step one function is there.
func parkedPoints(ctx context.Context, t *testing.T, m *park.Machine) {
	if missing := m.Unmapped(); len(missing) > 0 {
		t.Errorf("Linux %s has no function for %q", m.Release, missing)
	}
	if err := m.Lookup(ctx, []string{"btrfs_no_such_function"}); !errors.Is(err, park.ErrNoFunction) {
		t.Errorf("a function that is not there: %v", err)
	}
}

// led leads the kernel through a schedule of each scenario, drawn at random: eight in ten have the
// engine's end. The others are named; what each comes from is not known yet.
func (g *guide) led() {
	t, p := g.t, policy.MustParse("linux-"+g.k.Version)
	asked, same, refused, notes := 0, 0, 0, 0
	for i, s := range scenario.All() {
		if i%*parkedEvery != 0 {
			continue
		}
		schedule, err := park.Draw(s, p, rand.New(rand.NewPCG(1, uint64(i))), 1+i%3)
		interop.Must(t, err)
		x := g.lead(&ask{s, p, schedule})
		if x == nil {
			continue
		}
		asked++
		switch {
		case x.Refused != "":
			refused++
			t.Logf("%s '%s' refused: %s", s.Name, schedule, x.Refused)
		case len(x.Differences) > 0:
			t.Logf("%s '%s' DIFFERENT: %s", s.Name, schedule, strings.Join(x.Differences, "; "))
		default:
			same++
		}
		if len(x.Notes) > 0 {
			notes++
		}
	}
	t.Logf("Linux %s, policy %s: of %d schedules %d have the engine's end, %d are refused, %d have steps that are others", g.k.Release, p.Name, asked, same, refused, notes)
	if asked == 0 || same*10 < (asked-refused)*8 {
		t.Errorf("of %d schedules, %d refused, %d have the engine's end", asked, refused, same)
	}
}

// refused asks for orders that the locks of every kernel forbid, and an engine without them takes:
// a truncate or a punch in the middle of a write. Linux says what it waits in.
func (g *guide) refused() {
	for _, c := range []struct{ scenario, schedule string }{{"truncate-race", "11:1"}, {"writer-punch", "11:1"}, {"truncate-into", "11:1"}, {"two-writers-overlap", "11:1"}} {
		s, err := scenario.Lookup(c.scenario)
		interop.Must(g.t, err)
		x := g.lead(&ask{s, policy.MustParse("unlocked"), c.schedule})
		if !strings.Contains(x.Refused, "it waits in") {
			g.t.Errorf("%s '%s' under unlocked is not refused: %+v", c.scenario, c.schedule, x)
		}
	}
}
