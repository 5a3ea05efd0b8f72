package drawn

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/judge/noticed"
)

// kinds has for each operator that asks for types one place that it is about, and neighbours that
// it must leave alone.
const kinds = `package kinds

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

type kind uint8

const big kind = 7

func area(from, to int) int { return to - from }

func arguments(lo, hi int) int { return area(lo, hi) }

func evaluated(f func() int) int { return area(f(), f()) }

func message(have, want int) error { return fmt.Errorf("have %d want %d", have, want) }

func unit() time.Duration { return 2 * time.Millisecond }

func typed() kind { return big }

func table() (x [4]int) { x[3] = 4096; return x }

type file struct {
	flushed int
	mu      sync.Mutex
	n       int
}

func (f *file) Flush() error { f.flushed++; return nil }

func (f *file) close() error { return f.Flush() }

func (f *file) save() error {
	if err := f.Flush(); err != nil {
		return err
	}
	return nil
}

func parse(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1, errors.New("no number")
	}
	return n, nil
}

func (f *file) locked() bool {
	f.mu.Lock()
	f.n++
	taken := !f.mu.TryLock()
	f.mu.Unlock()
	return taken
}

func (f *file) deferred() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.mu.TryLock()
}

func (f *file) branches(a bool) {
	f.mu.Lock()
	if a {
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
}
`

// tagged is a file of the system that the tests run on; other is one of no system.
const tagged = "//go:build %s\n\npackage kinds\n\nfunc here%s() int { return 4096 }\n"

const kindsTest = `package kinds

import (
	"testing"
	"time"
)

func TestKinds(t *testing.T) {
	if arguments(1, 3) != 2 || area(1, 3) != 2 { t.Error("area") }
	if message(1, 2).Error() != "have 1 want 2" { t.Error("message") }
	if unit() != 2*time.Millisecond || typed() != 7 || table()[3] != 4096 || here() != 4096 { t.Error("values") }
	f := &file{}
	if f.close() != nil || f.flushed != 1 { t.Error("close") }
	if f.save() != nil || f.flushed != 2 { t.Error("save") }
	if n, err := parse("x"); n != -1 || err == nil { t.Error("parse") }
	if !f.locked() || !f.deferred() { t.Error("locked") }
	f.branches(true)
	f.branches(false)
}
`

// kindsModule is a module with one file of kinds, one with a build tag, and one that does not
// build here.
func kindsModule(t *testing.T) string {
	top := t.TempDir()
	must(t, os.Mkdir(filepath.Join(top, "kinds"), 0o755))
	for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.24\n", "kinds/kinds.go": kinds, "kinds/kinds_test.go": kindsTest,
		"kinds/here.go":      strings.NewReplacer("%s()", "()", "%s", runtime.GOOS).Replace(tagged),
		"kinds/elsewhere.go": strings.NewReplacer("%s()", "Elsewhere()", "%s", "!"+runtime.GOOS).Replace(tagged)} {
		must(t, os.WriteFile(filepath.Join(top, name), []byte(text), 0o644))
	}
	return top
}

// planted are the faults of the operators that ask for types.
var planted = []string{
	"kinds/here.go:here value: 4096 -> int(8192)",
	"kinds/kinds.go:area variable: to -> from",
	"kinds/kinds.go:arguments arguments: area(lo, hi) -> area(hi, lo)",
	"kinds/kinds.go:arguments variable: hi -> lo",
	"kinds/kinds.go:arguments variable: lo -> hi",
	"kinds/kinds.go:close skip: return f.Flush() -> return nil",
	"kinds/kinds.go:deferred unlocked: f.mu.Lock(); defer f.mu.Unlock() -> ",
	"kinds/kinds.go:locked unlocked: f.mu.Lock(); f.mu.Unlock() -> ",
	"kinds/kinds.go:message message: fmt.Errorf(have, want) -> fmt.Errorf(want, have)",
	"kinds/kinds.go:parse ignore: err != nil -> false",
	"kinds/kinds.go:save skip: f.Flush() -> ",
	"kinds/kinds.go:table value: 3 -> int(4)",
	"kinds/kinds.go:table value: 4096 -> int(8192)",
	"kinds/kinds.go:typed value: big -> kind(8)",
	"kinds/kinds.go:unit value: 2 * time.Millisecond -> time.Duration(2000)",
}

// place is a site as planted has it.
func place(s *Site) string {
	fn, _, _ := strings.Cut(strings.TrimPrefix(s.ID, s.File+":"), ":")
	return s.File + ":" + fn + " " + s.Op + ": " + noticed.OneLine(s.Old) + " -> " + noticed.OneLine(s.New)
}

// Each operator finds its place, also in a file with a build tag of this system, and nothing more:
// not arguments that would be evaluated twice, locks that several ways unlock, and lengths of
// arrays, which must be constants.
func TestTyped(t *testing.T) {
	sites, err := Find(kindsModule(t), []string{"kinds"})
	must(t, err)
	var have []string
	for _, s := range sites {
		switch s.Op {
		case "arguments", "message", "value", "variable", "ignore", "skip", "unlocked":
			have = append(have, place(s))
		}
	}
	slices.Sort(have)
	// The other variables of area, and the check of an error that is never one, are places as well.
	for _, more := range []string{"kinds/kinds.go:area variable: from -> to", "kinds/kinds.go:save ignore: err != nil -> false"} {
		if i := slices.Index(have, more); i >= 0 {
			have = slices.Delete(have, i, i+1)
		} else {
			t.Errorf("no site %s", more)
		}
	}
	if !slices.Equal(have, planted) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(planted, "\n"))
	}
}

// What they plant builds, and does what it says: a test that asks for it fails.
func TestTypedVerdicts(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command five times")
	}
	top := kindsModule(t)
	all, err := Find(top, []string{"kinds"})
	must(t, err)
	sites := slices.DeleteFunc(all, func(s *Site) bool {
		return !slices.Contains(planted, place(s))
	})
	dir := t.TempDir()
	for len(sites) > 0 {
		use := Draw(sites, len(sites), "all that do not overlap")
		sites = slices.DeleteFunc(sites, func(s *Site) bool { return slices.Contains(use, s) })
		built, overlay, err := Build(dir, top, use, len(use))
		must(t, err)
		bins, err := Link(dir, top, overlay, []string{"./kinds"})
		must(t, err)
		if len(built) != len(use) {
			t.Errorf("%d of %d sites build", len(built), len(use))
		}
		for _, s := range built {
			if v, by := Try(s, []Test{{Bin: &bins[0], Name: "TestKinds"}}); v != noticed.Killed {
				t.Errorf("%s: %v by %q", s.ID, v, by)
			}
		}
	}
}

// A test that is late once has not noticed anything: the machine was busy. Late twice it hangs.
func TestLateOnce(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) *Binary {
		name = filepath.Join(dir, name)
		must(t, os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o755))
		return &Binary{Pkg: "./p", Path: name, dir: dir}
	}
	was := patience
	patience = 300e6
	t.Cleanup(func() { patience = was })
	for _, k := range []struct {
		name, text string
		want       noticed.Verdict
	}{
		{"once", "[ -e ran ] && exit 0; touch ran; exec sleep 60", noticed.Survives},
		{"twice", "exec sleep 60", noticed.Hangs},
		{"then fails", "[ -e began ] && exit 1; touch began; exec sleep 60", noticed.Killed},
	} {
		if v, _ := Try(&Site{File: "p/p.go", nth: 1}, []Test{{Bin: script(k.name, k.text), Name: "TestX"}}); v != k.want {
			t.Errorf("%s: %v, want %v", k.name, v, k.want)
		}
	}
}
