package kernel

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"btrlab/internal/interop"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/judge/park"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

var (
	recordedKeep  = flag.Bool("recorded.keep", false, "record what each kernel does when it is led, in internal/judge/park/recorded")
	recordedEvery = flag.Int("recorded.every", 9, "without -recorded.keep, lead each kernel through each N-th schedule of its recording")
)

// ask is a schedule that a kernel is led through.
type ask struct {
	s        *scenario.Scenario
	p        *policy.Policy
	schedule string
}

// forbidden are scenarios whose operations some kernel takes one after the other: many a schedule
// of a policy without locks is refused.
var forbidden = []string{"truncate-race", "two-writers-overlap", "writer-punch", "writer-fallocate", "direct-writers", "unaligned-writers"}

// pool is what each kernel is recorded with: the exhibits, two schedules of each of the seeds'
// scenarios under the policy of 6.18, and of those that locks forbid each order without locks in
// which the second task comes in at one step of the first.
func pool(t *testing.T) (list []ask) {
	t.Helper()
	add := func(name string, p *policy.Policy, schedule string) {
		s, err := scenario.Lookup(name)
		interop.Must(t, err)
		list = append(list, ask{s, p, schedule})
	}
	for i := range park.Exhibits {
		e := &park.Exhibits[i]
		m := e.Museum()
		add(m.Scenario, policy.MustParse(m.Broken), e.Schedule)
	}
	drawn := policy.MustParse("linux-6.18")
	for i, name := range seedScenarios {
		s, err := scenario.Lookup(name)
		interop.Must(t, err)
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		for n := range 2 {
			schedule, err := park.Draw(s, drawn, rng, 1+n%3)
			interop.Must(t, err)
			add(name, drawn, schedule)
		}
	}
	unlocked := policy.MustParse("unlocked")
	for _, name := range forbidden {
		s, err := scenario.Lookup(name)
		interop.Must(t, err)
		plain, err := scenario.Replay(s, unlocked, "", false)
		interop.Must(t, err)
		seen := map[string]bool{}
		for k := range plain.Steps {
			schedule := fmt.Sprintf("%d:1", k)
			tr, err := scenario.Replay(s, unlocked, schedule, false)
			interop.Must(t, err)
			o, err := park.Order(s, unlocked, schedule)
			interop.Must(t, err)
			if tr.Schedule == schedule && tr.Kind != explore.KindMisfit && !seen[o] {
				seen[o] = true
				add(name, unlocked, schedule)
			}
		}
	}
	return list
}

// guide leads one kernel through schedules.
type guide struct {
	park.Leader
	t    *testing.T
	k    *kernels.Kernel
	hung int // schedules that were begun again
}

// newGuide leads a kernel in so many tries of a schedule, each of at most so long.
func newGuide(t *testing.T, k *kernels.Kernel, tries int, long time.Duration) *guide {
	t.Helper()
	program, err := guestProgram()
	interop.Must(t, err)
	g := &guide{t: t, k: k, Leader: park.Leader{Time: long, Tries: tries,
		Options: park.Options{Kernel: k, Program: program, Args: jobs.Args("tasks"), Image: filepath.Join(t.TempDir(), "image")}}}
	g.Again = func(err error) {
		g.hung++
		t.Logf("Linux %s: %v", k.Version, err)
	}
	t.Cleanup(func() { interop.Must(t, g.Close()) })
	return g
}

// lead leads the kernel through a schedule; nil is one that no kernel is led through.
func (g *guide) lead(a *ask) *park.Replayed {
	g.t.Helper()
	x, err := g.Lead(context.Background(), a.s, a.p, a.schedule)
	if errors.Is(err, park.ErrNoCall) || errors.Is(err, park.ErrNoEnd) {
		return nil
	}
	if err != nil {
		g.t.Fatalf("%s '%s' under %s: %v", a.s.Name, a.schedule, a.p.Name, err)
	}
	return x
}

// Each kernel does again what it did when it was recorded. What is recorded came out the same
// twice; the figure of what did not is printed.
func TestKernelRecorded(t *testing.T) {
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			g := newGuide(t, k, 4, time.Minute)
			if *recordedKeep {
				g.record(pool(t))
				return
			}
			r, err := park.Recorded(k.Version)
			interop.Must(t, err)
			other, led := 0, 0
			for i := 0; i < len(r.Runs); i += *recordedEvery {
				was := r.Runs[i]
				s, err := scenario.Lookup(was.Scenario)
				interop.Must(t, err)
				led++
				if x := g.lead(&ask{s, policy.MustParse(was.Policy), was.Schedule}); x == nil || x.Outcome() != was.Outcome() {
					other++
					t.Logf("%s '%s' under %s: recorded %s, now %+v", was.Scenario, was.Schedule, was.Policy, was.Outcome(), x)
				}
			}
			t.Logf("Linux %s: %d of %d led again, %d otherwise, %d hung", k.Release, led, len(r.Runs), other, g.hung)
			if led == 0 || other*10 > led {
				t.Errorf("%d of %d schedules came out otherwise than they were recorded", other, led)
			}
		})
	}
}

// TestOneLed is the sample of what make kernels leads: three exhibits in one kernel.
func TestOneLed(t *testing.T) {
	k, draw := oneKernel(t)
	g := newGuide(t, k, 4, time.Minute)
	for i := range 3 {
		e := &park.Exhibits[(draw+i)%len(park.Exhibits)]
		s, p, err := e.Asks()
		interop.Must(t, err)
		if x := g.lead(&ask{s, p, e.Schedule}); x.Breaks() != slices.Contains(e.Broken, k.Version) {
			t.Errorf("exhibit %d on Linux %s: %+v", e.Number, k.Release, x)
		}
	}
}

// record leads the kernel through each schedule twice, and keeps what agrees.
func (g *guide) record(list []ask) {
	r := park.Recording{Version: g.k.Version, Release: g.k.Release, Date: time.Now().Format(time.DateOnly)}
	count, unsteady := map[park.Outcome]int{}, 0
	for i := range list {
		a := &list[i]
		x := g.lead(a)
		if x == nil {
			g.t.Logf("not led: %s '%s' under %s", a.s.Name, a.schedule, a.p.Name)
			continue
		}
		if y := g.lead(a); y == nil || !x.Agrees(y) {
			unsteady++
			g.t.Logf("unsteady: %s '%s' under %s: %+v, then %+v", a.s.Name, a.schedule, a.p.Name, x, y)
			continue
		}
		count[x.Outcome()]++
		r.Runs = append(r.Runs, x)
	}
	b, err := r.Pack()
	interop.Must(g.t, err)
	interop.Must(g.t, os.WriteFile(filepath.Join("../../judge/park/recorded", g.k.Version+".json.gz"), b, 0o644))
	g.t.Logf("Linux %s: %v, %d unsteady, %d hung, %d bytes", g.k.Release, count, unsteady, g.hung, len(b))
}

// The pool has what is wanted of it, whatever the kernels say.
func TestPool(t *testing.T) {
	count := map[string]int{}
	for _, a := range pool(t) {
		count[a.s.Name+" "+a.p.Name]++
	}
	t.Log(count)
	for _, name := range forbidden {
		if count[name+" unlocked"] < 3 {
			t.Errorf("%s has %d orders", name, count[name+" unlocked"])
		}
	}
}
