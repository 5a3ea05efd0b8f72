package explore_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// G1: schedules per second of P2(2x3) by a random walk, 1.0 million with all checks and 1.3 million
// without, and 15 million steps. The goals are for a quiet core; processor time is what to look at
// when others use it, too.
func BenchmarkRandomWalk(b *testing.B) {
	for _, c := range []struct {
		name string
		off  explore.Checks
		goal float64 // million schedules per second of 2x3
	}{{"checks", 0, 1.0}, {"raw", ^explore.Checks(0), 1.3}} {
		for _, p := range []struct {
			n, m int
			how  string
			prog func(n, m int) func(w *explore.World)
		}{{2, 3, "machines", sectionsByMachine}, {2, 3, "tasks", sections}, {3, 3, "machines", sectionsByMachine}, {3, 3, "tasks", sections}} {
			b.Run(fmt.Sprintf("%s/%dx%d/%s", c.name, p.n, p.m, p.how), func(b *testing.B) {
				sched.SetChecked(false)
				defer sched.SetChecked(true)
				cpu := cpuSeconds()
				r := explore.Run(explore.Config{Method: explore.Random, Schedules: b.N, Off: c.off}, p.prog(p.n, p.m))
				cpu = cpuSeconds() - cpu
				b.ReportMetric(float64(r.Schedules)/r.Seconds/1e6, "Mschedules/s")
				b.ReportMetric(float64(r.Schedules)/cpu/1e6, "Mschedules/cpu-s")
				b.ReportMetric(float64(r.Steps)/cpu/1e6, "Msteps/cpu-s")
				b.ReportMetric(15, "goal-Msteps/s")
				if p.n == 2 {
					b.ReportMetric(c.goal, "goal-Mschedules/s")
				}
			})
		}
	}
}

// cpuSeconds is the processor time of the process: what counts on a machine that is shared.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// G2, G3, G5: proofs, with the goals for schedules and microseconds where there are some.
func BenchmarkExhaust(b *testing.B) {
	for _, c := range []struct {
		name      string
		method    explore.Method
		prog      func(w *explore.World)
		schedules float64
		us        float64
	}{
		{"P2-2x3/dpor", explore.DPOR, sections(2, 3), 20, 25},
		{"P2-3x3/state", explore.State, sections(3, 3), 100, 500},
		{"P2-3x3/dpor", explore.DPOR, sections(3, 3), 0, 0},
		{"P3/dpor", explore.DPOR, twoLocks(false), 90, 300},
		{"TR1-fixed/dpor", explore.DPOR, truncateRace(1, true), 0, 0},
		{"TR2-fixed/dpor", explore.DPOR, truncateRace(2, true), 0, 1_000},
		{"TR3-fixed/dpor", explore.DPOR, truncateRace(3, true), 0, 20_000},
		{"TR3-fixed/state", explore.State, truncateRace(3, true), 0, 20_000},
		{"TR4-fixed/state", explore.State, truncateRace(4, true), 0, 500_000},
		{"TR5-fixed/state", explore.State, truncateRace(5, true), 0, 5_000_000},
	} {
		b.Run(c.name, func(b *testing.B) {
			var r explore.Result
			cpu := cpuSeconds()
			for b.Loop() {
				r = explore.Run(explore.Config{Method: c.method}, c.prog)
				if r.Verdict != explore.Exhausted {
					b.Fatal(r.Bound, r.Violation)
				}
			}
			b.ReportMetric((cpuSeconds()-cpu)/float64(b.N)*1e6, "cpu-us/op")
			b.ReportMetric(float64(r.Schedules), "schedules")
			if c.us > 0 {
				b.ReportMetric(c.us, "goal-us/op")
			}
			if c.schedules > 0 {
				b.ReportMetric(c.schedules, "goal-schedules")
			}
		})
	}
}

// G5: no violation with at most two preemptions, five writers and the fixed truncate; 10 s.
func BenchmarkBound(b *testing.B) {
	var r explore.Result
	for b.Loop() {
		r = explore.Run(explore.Config{Preemptions: 2}, truncateRace(5, true))
		if r.Verdict != explore.Bounded {
			b.Fatal(r.Bound, r.Violation)
		}
	}
	b.ReportMetric(float64(r.Schedules), "schedules")
	b.ReportMetric(10, "goal-s/op")
}

// G3, G4: from nothing to the shortest schedule, the proof that no shorter one exists included:
// P3's deadlock in 3 schedules at most, the truncate race in 40 and 1 ms, a schedule of 5
// characters with one preemption.
func BenchmarkFind(b *testing.B) {
	for _, c := range []struct {
		name   string
		method explore.Method
		off    explore.Checks
		prog   func(w *explore.World)
	}{
		{"P3-order/dpor", explore.DPOR, 0, twoLocks(true)},
		{"P3-deadlock/dpor", explore.DPOR, explore.CheckLockOrder, twoLocks(true)},
		{"TR1/bound", explore.Bound, 0, truncateRace(1, false)},
		{"TR2/bound", explore.Bound, 0, truncateRace(2, false)},
		{"TR3/bound", explore.Bound, 0, truncateRace(3, false)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var r explore.Result
			for b.Loop() {
				r = explore.Run(explore.Config{Method: c.method, Off: c.off}, c.prog)
			}
			b.ReportMetric(float64(r.Found), "found-in")
			b.ReportMetric(float64(r.Preemptions), "preemptions")
			b.ReportMetric(float64(len(r.Schedule)), "chars")
		})
	}
}

// G4: the worst of 1,000 seeds of the samplers finds the race in 100 schedules at most.
func BenchmarkWorstSeed(b *testing.B) {
	for _, m := range []explore.Method{explore.PCT, explore.POS, explore.Portfolio} {
		b.Run(string(m), func(b *testing.B) {
			worst := 0
			for b.Loop() {
				for seed := range uint64(1000) {
					r := explore.Run(explore.Config{Method: m, Seed: seed, NoShrink: true}, truncateRace(3, false))
					worst = max(worst, r.Found)
				}
			}
			b.ReportMetric(float64(worst), "worst")
			b.ReportMetric(100, "goal-worst")
		})
	}
}

// G12: two jobs against one, in turn, 1.8 times as fast on two quiet cores. What each schedule
// costs in processor time says whether it is the search that falls short or the machine that is
// shared: a search that scales pays as much with two jobs as with one.
func BenchmarkJobs(b *testing.B) {
	for _, m := range []explore.Method{explore.Naive, explore.Random} {
		b.Run(string(m), func(b *testing.B) {
			var took, cpu [3]float64 // by jobs
			for b.Loop() {
				for jobs := 1; jobs <= 2; jobs++ {
					before, start := cpuSeconds(), time.Now()
					r := explore.Run(explore.Config{Method: m, Jobs: jobs, Schedules: 300_000}, sections(4, 3))
					// jobs that come to the bound at once may pass it by one each
					n := float64(r.Schedules)
					took[jobs] += time.Since(start).Seconds() / n
					cpu[jobs] += (cpuSeconds() - before) / n
				}
			}
			b.ReportMetric(took[1]/took[2], "jobs2/jobs1")
			b.ReportMetric(cpu[2]/cpu[1], "cpu2/cpu1")
			b.ReportMetric(1.8, "goal-jobs2/jobs1")
		})
	}
}
