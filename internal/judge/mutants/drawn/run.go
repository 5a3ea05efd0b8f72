package drawn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"btrlab/internal/judge/noticed"
)

// Test is one test of a binary.
type Test struct {
	Bin  *Binary
	Name string
	Took time.Duration // without a fault
}

// patience is the time that the tests of a fault get beside three times their time without it, and
// the second time beside seven times.
var patience = 30 * time.Second

// memoryKiB bounds a test process: a fault may make a loop that allocates for ever.
const memoryKiB = 12 << 20

// run runs tests of a binary with the given additions to the environment.
func run(b *Binary, names []string, limit time.Duration, env ...string) (out []byte, late bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memoryKiB), b.Path, "-test.short", "-test.failfast", "-test.timeout=0", "-test.run", pattern(names))
	c.Dir = b.dir
	c.Env = append(os.Environ(), env...)
	c.WaitDelay = time.Second
	out, err = c.CombinedOutput()
	return out, ctx.Err() != nil, err
}

// pattern matches the tests of these names, and of a name with a slash only this part of the test.
func pattern(names []string) string {
	var each []string
	for _, name := range names {
		each = append(each, "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
	}
	return strings.Join(each, "|")
}

// scripts is the test that runs each script of a folder, seen from that of the test: a fault is
// tried with those that reach it only.
const scripts, scriptFiles = "TestScripts", "../../testdata/script/*.txtar"

// Tests lists the tests of a binary, with TestScripts in its parts.
func (b *Binary) Tests() ([]string, error) {
	c := exec.Command(b.Path, "-test.list", "^Test")
	c.Dir = b.dir
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Pkg, err)
	}
	names := regexp.MustCompile(`(?m)^Test\S*`).FindAllString(string(out), -1)
	if i := slices.Index(names, scripts); i >= 0 {
		files, err := filepath.Glob(filepath.Join(b.dir, scriptFiles))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s: %s has no files %s", b.Pkg, scripts, scriptFiles)
		}
		for j, f := range files {
			files[j] = scripts + "/" + strings.TrimSuffix(filepath.Base(f), ".txtar")
		}
		names = slices.Replace(names, i, i+1, files...)
	}
	return names, nil
}

// longest is the time after which a test without a fault is given up.
const longest = 5 * time.Minute

// Reach runs a test of b without a fault and returns the numbers of the sites that it comes to. A
// test that fails by itself is an error.
func (b *Binary) Reach(name, dir string) (Test, []int, error) {
	file := filepath.Join(dir, strings.ReplaceAll(b.Dir()+"."+name, "/", "."))
	began := time.Now()
	out, late, err := run(b, []string{name}, longest, Env+"=0", EnvReached+"="+file)
	t := Test{Bin: b, Name: name, Took: time.Since(began)}
	if err != nil || late {
		return t, nil, fmt.Errorf("%s of %s fails without a fault: %w\n%s", name, b.Pkg, err, out)
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil, nil
	}
	if err != nil {
		return t, nil, err
	}
	var sites []int
	for _, f := range bytes.Fields(text) {
		n, err := strconv.Atoi(string(f))
		if err != nil {
			return t, nil, err
		}
		sites = append(sites, n)
	}
	return t, sites, os.Remove(file)
}

// Try runs the given tests, which reach the site, with its fault on, until one fails: those of the
// site's own package first, then the short ones. It returns the name of the test that failed.
func Try(s *Site, tests []Test) (noticed.Verdict, string) {
	if len(tests) == 0 {
		return noticed.Unreached, ""
	}
	groups := map[*Binary][]Test{}
	var bins []*Binary
	for _, t := range tests {
		if groups[t.Bin] == nil {
			bins = append(bins, t.Bin)
		}
		groups[t.Bin] = append(groups[t.Bin], t)
	}
	took := func(b *Binary) (d time.Duration) {
		for _, t := range groups[b] {
			d += t.Took
		}
		return d
	}
	own := func(b *Binary) int {
		if b.Pkg == "./"+s.Dir() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(bins, func(a, b *Binary) int {
		if d := own(a) - own(b); d != 0 {
			return d
		}
		return int(took(a) - took(b))
	})
	for _, b := range bins {
		var names []string
		for _, t := range groups[b] {
			names = append(names, t.Name)
		}
		again := func(times time.Duration) ([]byte, bool, error) {
			return run(b, names, patience+times*took(b), fmt.Sprintf("%s=%d", Env, s.nth))
		}
		out, late, err := again(3)
		if late { // The machine may have been busy.
			out, late, err = again(7)
		}
		switch {
		case late:
			return noticed.Hangs, b.Pkg
		case err != nil:
			if m := regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindSubmatch(out); m != nil {
				return noticed.Killed, string(m[1])
			}
			return noticed.Killed, b.Pkg
		}
	}
	return noticed.Survives, ""
}
