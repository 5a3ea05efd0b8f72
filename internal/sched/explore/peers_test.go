package explore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// The explorer beside relacy (C++) and shuttle (Rust) on the same program, a random walk through
// P2(2x3), in turn and by processor time. Goals: 1.0 times relacy raw, 0.8 with checks. Ours are
// machines there; beside them stand tasks with stacks, which both peers have. Relacy's random walk
// checks races and lock order, too, but no order of classes, and keeps no clocks for a program
// without shared data, as ours. The peers are built in the folder BTRLAB_PEERS, once. One
// that cannot be built is left out: relacy is relacy-dev in Debian and needs g++, shuttle is a
// crate and needs cargo and the registry.
func BenchmarkPeers(b *testing.B) {
	dir := os.Getenv("BTRLAB_PEERS")
	if dir == "" {
		b.Skip("BTRLAB_PEERS is not set")
	}
	const n = 500_000
	type contender struct {
		name string
		n    int
		run  func(n int) float64 // processor seconds
		took float64
	}
	ours := func(off explore.Checks, prog func(w *explore.World)) func(n int) float64 {
		return func(n int) float64 {
			cpu := cpuSeconds()
			explore.Run(explore.Config{Method: explore.Random, Schedules: n, Off: off}, prog)
			return cpuSeconds() - cpu
		}
	}
	theirs := func(bin string) func(n int) float64 {
		return func(n int) float64 {
			cmd := exec.Command(bin, fmt.Sprint(n))
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%s: %v\n%s", bin, err, out)
			}
			return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
		}
	}
	const none = ^explore.Checks(0)
	all := []*contender{{"raw", n, ours(none, sectionsByMachine(2, 3)), 0}, {"checks", n, ours(0, sectionsByMachine(2, 3)), 0},
		{"raw-tasks", n, ours(none, sections(2, 3)), 0}, {"checks-tasks", n, ours(0, sections(2, 3)), 0}}
	build := func(name string, n int, bin string, args ...string) {
		if _, err := os.Stat(bin); err != nil {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				b.Logf("without %s: %v\n%s", name, err, out)
				return
			}
		}
		all = append(all, &contender{name, n, theirs(bin), 0})
	}
	crate := filepath.Join(dir, "shuttle")
	if _, err := os.Stat(filepath.Join(crate, "Cargo.toml")); err != nil { // cargo writes beside it
		if err := os.CopyFS(crate, os.DirFS("testdata/peers/shuttle")); err != nil {
			b.Fatal(err)
		}
	}
	relacy := filepath.Join(dir, "relacy")
	build("relacy", n, relacy, "g++", "-O3", "-march=native", "-DNDEBUG", "-w", "-o", relacy, "testdata/peers/relacy.cpp")
	build("shuttle", n/8, filepath.Join(crate, "target", "release", "sections"), "cargo", "build", "--quiet", "--release", "--manifest-path", filepath.Join(crate, "Cargo.toml"))
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	for b.Loop() {
		for _, c := range all {
			c.took += c.run(c.n)
		}
	}
	rate := map[string]float64{}
	for _, c := range all {
		rate[c.name] = float64(c.n) * float64(b.N) / c.took / 1e6
		b.ReportMetric(rate[c.name], c.name+"-Mschedules/cpu-s")
	}
	if r := rate["relacy"]; r > 0 {
		for _, c := range all[:4] {
			b.ReportMetric(rate[c.name]/r, c.name+"/relacy")
		}
	}
}
