package mutants

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	plant  = flag.String("plant", "", "plant the faults whose id matches this expression")
	sample = flag.Int("sample", 0, "of those, plant as many as this, drawn by the commit; 0 plants all")
	jobs   = flag.Int("jobs", 2, "faults that are planted at a time")
	report = flag.String("report", "", "write the report into this file as well")
)

// patience is go test's timeout for the tests of one fault. They take seconds, and a stuck test
// ends by itself within ten. Tests that are still running then are run without the fault: if those
// take long as well it is the machine that is slow, and the fault gets more time (try).
const patience = 2 * time.Minute

// verdict is the fate of a planted fault.
type verdict int

const (
	killed verdict = iota
	equivalent
	survives  // the tests pass
	hangs     // a test ran into go test's timeout, or out of memory
	unbuilt   // the fault does not compile
	noTests   // no test ran
	refuted   // it is said to be equivalent, and a test noticed it
	redBefore // the tests fail without any fault
)

var verdicts = [...]string{"killed", "equivalent", "survives", "hangs", "does not build", "runs no test", "is noticed, so it is not equivalent",
	"was not planted: its tests fail without it"}

func (v verdict) String() string { return verdicts[v] }

// outcome is a fault with its verdict.
type outcome struct {
	*fault
	verdict
	stuck  bool // killed by a test that got stuck and said so
	took   time.Duration
	output []byte // of go test, where the verdict needs one
}

// judge turns what go test said about f into a verdict.
func judge(f *fault, failed bool, out []byte) verdict {
	has := func(s string) bool { return bytes.Contains(out, []byte(s)) }
	switch {
	case has("[build failed]") || has("[setup failed]"):
		return unbuilt
	case failed && (has("panic: test timed out") || has("signal: killed")):
		return hangs
	case !failed && !regexp.MustCompile(`(?m)^ok .*s$`).Match(out) && !has("(cached)\n"):
		return noTests
	case f.equivalent != "" && failed:
		return refuted
	case f.equivalent != "":
		return equivalent
	case failed:
		return killed
	}
	return survives
}

// goTest runs the fast tests of the packages; args come before the packages.
func goTest(top string, timeout time.Duration, run, pkgs string, args ...string) (failed bool, out []byte) {
	args = append([]string{"test", "-short", "-vet=off", "-failfast", "-timeout", timeout.String()}, args...)
	if run != "" {
		args = append(args, "-run", run)
	}
	c := exec.Command("go", append(args, strings.Fields(pkgs)...)...)
	c.Dir = top
	out, err := c.CombinedOutput()
	return err != nil, out
}

// overlay writes f's file with the fault in it, and what go test -overlay gets, into dir.
func overlay(dir, top string, f *fault) (string, error) {
	src, err := os.ReadFile(filepath.Join(top, f.file))
	if err != nil {
		return "", err
	}
	changed, name := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, f.plant(src), 0o644); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(top, f.file): changed}})
	if err != nil {
		return "", err
	}
	return name, os.WriteFile(name, text, 0o644)
}

// slow is how many times as long as without it the tests of a fault may take.
const slow = 5

// try plants f and runs its tests.
func try(dir, top string, timeout time.Duration, f *fault) outcome {
	began := time.Now()
	name, err := overlay(dir, top, f)
	if err != nil {
		return outcome{fault: f, verdict: unbuilt, output: []byte(err.Error())}
	}
	failed, out := goTest(top, timeout, f.test, f.pkg, "-overlay", name)
	if judge(f, failed, out) == hangs {
		without := time.Now()
		goTest(top, longest, f.test, f.pkg, "-count=1")
		if more := slow * time.Since(without); more > timeout {
			failed, out = goTest(top, more, f.test, f.pkg, "-overlay", name)
		}
	}
	o := outcome{fault: f, verdict: judge(f, failed, out), took: time.Since(began)}
	o.stuck = o.verdict == killed && bytes.Contains(out, []byte("stuck: "))
	if o.verdict > survives {
		o.output = out
	}
	return o
}

// longest is the timeout of tests without a fault.
const longest = 10 * time.Minute

// healthy runs the tests that the faults name without any fault, package by package, and returns
// the packages whose tests fail: such a test would notice every fault.
func healthy(top string, faults []*fault) (red map[string][]byte) {
	run := map[string][]string{}
	for _, f := range faults {
		for _, pkg := range strings.Fields(f.pkg) {
			part := f.test
			if part == "" {
				part = "."
			}
			if !slices.Contains(run[pkg], part) {
				run[pkg] = append(run[pkg], part)
			}
		}
	}
	red = map[string][]byte{}
	for _, pkg := range slices.Sorted(maps.Keys(run)) {
		if failed, out := goTest(top, longest, strings.Join(run[pkg], "|"), pkg); failed {
			red[pkg] = out
		}
	}
	return red
}

// draw picks n of the faults by a hash of the seed: the same for the same seed, and another set for
// the next commit.
func draw(faults []*fault, n int, seed string) []*fault {
	key := func(f *fault) string {
		sum := sha256.Sum256([]byte(seed + " " + f.id))
		return string(sum[:])
	}
	faults = slices.SortedFunc(slices.Values(faults), func(a, b *fault) int { return strings.Compare(key(a), key(b)) })
	return faults[:min(n, len(faults))]
}

// commit is the seed of the sample; outside of a repository it is fixed.
func commit(top string) string {
	c := exec.Command("git", "rev-parse", "HEAD")
	c.Dir = top
	out, err := c.Output()
	if err != nil {
		return "no commit"
	}
	return strings.TrimSpace(string(out))
}

// tally counts the faults of one room.
type tally struct {
	planted, killed, stuck, equivalent int
	took                               time.Duration
}

func (y *tally) add(o *outcome) {
	y.planted++
	y.took += o.took
	switch o.verdict {
	case killed:
		y.killed++
		if o.stuck {
			y.stuck++
		}
	case equivalent:
		y.equivalent++
	}
}

func (y *tally) row(name string) string {
	return fmt.Sprintf("%-24s%8d%8d%8d%12d%9d%7.0f s\n", name, y.planted, y.killed, y.stuck, y.equivalent, y.planted-y.killed-y.equivalent, y.took.Seconds())
}

// table is the report: counts by room, the share killed, and a line or two for each fault that
// needs a word.
func table(outcomes []outcome) string {
	rooms := map[string]*tally{}
	var total tally
	var kept, bad strings.Builder
	for i := range outcomes {
		o := &outcomes[i]
		if rooms[o.room()] == nil {
			rooms[o.room()] = &tally{}
		}
		rooms[o.room()].add(o)
		total.add(o)
		switch o.verdict {
		case killed:
		case equivalent:
			fmt.Fprintf(&kept, "%s: %s\n  equivalent: %s\n", o.id, o.why, o.equivalent)
		default:
			fmt.Fprintf(&bad, "%s %v: %s\n", o.id, o.verdict, o.why)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s%8s%8s%8s%12s%9s%9s\n", "room", "planted", "killed", "(stuck)", "equivalent", "survive", "time")
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		b.WriteString(rooms[name].row(name))
	}
	b.WriteString(total.row("all"))
	if n := total.planted - total.equivalent; n > 0 {
		fmt.Fprintf(&b, "killed %.1f %% of the %d that are not equivalent\n", 100*float64(total.killed)/float64(n), n)
	}
	for _, part := range []struct{ title, text string }{{"equivalent", kept.String()}, {"survivors", bad.String()}} {
		if part.text != "" {
			b.WriteString("\n" + part.title + ":\n" + part.text)
		}
	}
	return b.String()
}

// Each fault that -plant names is noticed by the fast tests of its packages, and each that is said
// to be equivalent is not.
func TestPlanted(t *testing.T) {
	if *plant == "" {
		t.Skip("plants nothing without -plant; make mutants plants all")
	}
	pick, err := regexp.Compile(*plant)
	if err != nil {
		t.Fatal(err)
	}
	top := root(t)
	faults := slices.DeleteFunc(catalogue(t), func(f *fault) bool { return !pick.MatchString(f.id) })
	if *sample > 0 {
		faults = draw(faults, *sample, commit(top))
	}
	began := time.Now()
	var red map[string][]byte
	if *sample == 0 { // a sample is for CI, where `make test` is a step of its own
		red = healthy(top, faults)
		for pkg, out := range red {
			t.Errorf("the tests of %s fail without a fault:\n%s", pkg, out)
		}
		fmt.Printf("the tests without a fault: %.0f s\n", time.Since(began).Seconds())
	}
	fmt.Printf("%d faults to plant\n", len(faults))

	began = time.Now()
	var mu sync.Mutex // protects outcomes and the lines that are printed
	var outcomes []outcome
	var workers sync.WaitGroup
	work := make(chan *fault)
	for range max(*jobs, 1) {
		workers.Go(func() {
			for f := range work {
				o := outcome{fault: f, verdict: redBefore}
				if !slices.ContainsFunc(strings.Fields(f.pkg), func(pkg string) bool { return red[pkg] != nil }) {
					o = try(t.TempDir(), top, patience, f)
				}
				mu.Lock()
				outcomes = append(outcomes, o)
				note := ""
				if o.stuck {
					note = " by a stuck test"
				}
				fmt.Printf("%3d of %d %4.0f s  %s %v%s\n", len(outcomes), len(faults), o.took.Seconds(), f.id, o.verdict, note)
				mu.Unlock()
			}
		})
	}
	for _, f := range faults {
		work <- f
	}
	close(work)
	workers.Wait()

	text := fmt.Sprintf("%s\n%.0f s, %d at a time\n", table(outcomes), time.Since(began).Seconds(), *jobs)
	fmt.Print("\n", text)
	if *report != "" {
		if err := os.MkdirAll(filepath.Dir(*report), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(*report, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range outcomes {
		if o.verdict > equivalent {
			t.Errorf("%s %v in %s: %s\n%s", o.id, o.verdict, o.pkg, o.why, o.output)
		}
	}
}
