package drawn

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	draw   = flag.Int("draw", 0, "draw so many faults and plant them")
	seed   = flag.String("seed", "", "by which they are drawn; empty is the commit")
	only   = flag.String("only", "", "plant the faults whose identities are the lines of this file, whatever the seed")
	rooms  = flag.String("rooms", "", "draw only from the packages, or files, that this regular expression names, without internal/")
	jobs   = flag.Int("jobs", 2, "test processes at a time")
	report = flag.String("report", "", "write the report into this file as well")
	least  = flag.Float64("least", 0.9, "the share of the faults, of those not equivalent, that must be noticed")
)

// engine are the rooms whose promises other rooms judge: the engine and its judges.
var engine = []string{"lock", "lock/extentio", "lock/workqueue", "sched/explore", "blockdev", "blockdev/dm", "format",
	"meta/volumes", "meta/ctree", "meta/spaceinfo", "meta/extenttree", "meta/qgroup", "meta/transaction", "meta/fstree",
	"data/pagecache", "data/extentmap", "data/ordered", "data/inode", "data/place", "data/delalloc", "data/fileread", "data/finish",
	"data/writeback", "data/zero", "data/treelog", "iopath", "iopath/policy", "iopath/buffered", "iopath/direct", "iopath/setsize",
	"iopath/fallocate", "iopath/reflink", "iopath/fsync", "fs", "uring", "aio", "judge/oracle", "judge/crash", "progs/check"}

// battery are the packages whose tests must notice a fault of the engine, beside those of its own
// package.
var battery = []string{"fs", "data/treelog", "meta/qgroup", "iopath/direct", "judge/crash", "progs/check", "uring", "data/writeback", "study/scenario"}

// elsewhere are the packages whose tests judge a room that has none, or has its judge elsewhere.
var elsewhere = map[string][]string{
	"internal/measure/linuxprice": {"cli"},
	"internal/measure/rig":        {"measure/experiment", "measure/calibrate", "measure/served"},
	"internal/draw/chart":         {"measure/report", "measure/reproduce"},
	"internal/trace":              {"measure/profile", "lock"},
	"internal/module":             {"study/sandbox"},
	"internal/sched":              {"sched/explore", "sched/vtime"},
	"internal/sched/cost":         {"sched/vtime"},
	"internal/kiocb":              {"uring", "aio"},
	"cmd/btrlab":                  {"cli"},
}

// unshipped are packages that only tests and students have: judges of the tree itself, what tests
// begin with, and the labs' files to change.
var unshipped = regexp.MustCompile(`^(internal/(arch|interop|testing|judge/mutants)(/|$)|labs/(kit/starter|[^k]))`)

// shipped are the folders of all other packages.
func shipped(t *testing.T, top string) []string {
	t.Helper()
	c := exec.Command("go", "list", "-f", "{{.Dir}}", "./...")
	c.Dir = top
	out, err := c.Output()
	must(t, err)
	var dirs []string
	for _, d := range strings.Fields(string(out)) {
		d, err := filepath.Rel(top, d)
		must(t, err)
		if d = filepath.ToSlash(d); !unshipped.MatchString(d) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// guards are the packages whose tests must notice a fault in the package dir.
func guards(dir string) []string {
	list := []string{dir}
	if slices.Contains(engine, strings.TrimPrefix(dir, "internal/")) {
		for _, b := range battery {
			list = append(list, "internal/"+b)
		}
	}
	for _, b := range elsewhere[dir] {
		list = append(list, "internal/"+b)
	}
	return list
}

// tested are the packages with tests that guard sites, as go test takes them.
func tested(top string, sites []*Site) []string {
	var list []string
	for _, s := range sites {
		for _, g := range guards(s.Dir()) {
			if names, _ := filepath.Glob(filepath.Join(top, g, "*_test.go")); len(names) > 0 {
				list = append(list, "./"+g)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Every package that ships is in the draw, and but for the commands, which have a few lines, has a
// guard.
func TestRooms(t *testing.T) {
	top, err := filepath.Abs("../../../..")
	must(t, err)
	dirs := shipped(t, top)
	for _, want := range []string{"internal/fs", "internal/mount", "internal/transfer", "internal/cli", "internal/measure/served", "labs/kit", "cmd/btrlab"} {
		if !slices.Contains(dirs, want) {
			t.Errorf("%s is not drawn from", want)
		}
	}
	for _, not := range []string{"internal/arch", "internal/testing/need", "internal/judge/mutants/drawn", "labs/05-range-lock", "labs/own"} {
		if slices.Contains(dirs, not) {
			t.Errorf("%s is drawn from", not)
		}
	}
	for _, d := range dirs {
		tests := 0
		for _, g := range guards(d) {
			names, err := filepath.Glob(filepath.Join(top, g, "*_test.go"))
			must(t, err)
			tests += len(names)
		}
		if tests == 0 && !strings.HasPrefix(d, "cmd/") {
			t.Errorf("no test guards %s", d)
		}
	}
}

// Faults that nobody chose, drawn by a seed. make bench draws a thousand, CI the thirty of its
// commit.
func TestDrawn(t *testing.T) {
	if *draw == 0 && *only == "" {
		t.Skip("draws nothing without -draw; make drawn does")
	}
	top, err := filepath.Abs("../../../..")
	must(t, err)
	argued, err := Argued("testdata/argued.txt")
	must(t, err)
	dirs := shipped(t, top)
	all, err := Find(top, dirs)
	must(t, err)
	if *rooms != "" {
		in, err := regexp.Compile(`^(internal/)?(` + *rooms + `)(/[^/]*\.go)?$`)
		must(t, err)
		all = slices.DeleteFunc(all, func(s *Site) bool { return !in.MatchString(s.File) })
	}
	by := *seed
	if by == "" {
		by = commit(top)
	}
	n := *draw
	sites := Draw(all, n+n/5+20, by) // some do not compile
	if *only != "" {
		text, err := os.ReadFile(*only)
		must(t, err)
		ids := strings.Split(string(text), "\n")
		sites = Draw(slices.DeleteFunc(all, func(s *Site) bool { return !slices.Contains(ids, s.ID) }), len(ids), by)
		n = len(sites)
	}
	began := time.Now()
	since := func(what string, args ...any) {
		fmt.Printf("%5.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(what, args...))
	}
	dir := t.TempDir()
	sites, bins, err := Build(dir, top, sites, n, func(sites []*Site) []string { return tested(top, sites) })
	must(t, err)
	since("%d of %d sites, drawn by %q, in %d test binaries", len(sites), len(all), by, len(bins))

	reach := make([][]Test, len(sites)+1)
	var mu sync.Mutex
	parallel(bins, func(b *Binary, each func(func())) {
		names, err := b.Tests()
		must(t, err)
		for _, name := range names {
			each(func() {
				test, at, err := b.Reach(name, dir)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				for _, n := range at {
					if slices.Contains(guards(sites[n-1].Dir()), strings.TrimPrefix(b.Pkg, "./")) {
						reach[n] = append(reach[n], test)
					}
				}
			})
		}
	})
	since("it is known which test reaches which site")

	outcomes := make([]Outcome, len(sites))
	work := make(chan int)
	var workers sync.WaitGroup
	done := 0
	for range *jobs {
		workers.Go(func() {
			for i := range work {
				s, from := sites[i], time.Now()
				v, test := Try(s, reach[s.nth])
				outcomes[i] = Outcome{Site: s, Verdict: v, By: test, Tests: len(reach[s.nth]), Took: time.Since(from), Argued: argued[s.ID]}
				mu.Lock()
				done++
				since("%d of %d, %s  %s %s", done, len(sites), s.ID, v, test)
				mu.Unlock()
			}
		})
	}
	for i := range sites {
		work <- i
	}
	close(work)
	workers.Wait()

	text := fmt.Sprintf("drawn by %q\n%s", by, Table(outcomes))
	fmt.Print("\n", text)
	if *report != "" {
		must(t, os.MkdirAll(filepath.Dir(*report), 0o755))
		must(t, os.WriteFile(*report, []byte(text), 0o644))
	}
	for _, o := range outcomes {
		if o.Argued != "" && o.Verdict.Noticed() {
			t.Errorf("%s is argued to be equivalent (%s), and %s notices it", o.ID, o.Argued, o.By)
		}
	}
	if s := Share(outcomes); s < *least {
		t.Errorf("%.1f %% noticed, want %.0f %%", 100*s, 100**least)
	}
}

// A line of argued.txt is about a fault that can be drawn. When the code or its function changes
// its name goes, and the argument must be made anew.
func TestArguedExist(t *testing.T) {
	argued, err := Argued("testdata/argued.txt")
	must(t, err)
	var dirs []string
	for id := range argued {
		file, _, _ := strings.Cut(id, ":")
		if dir := path.Dir(file); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	top, err := filepath.Abs("../../../..")
	must(t, err)
	all, err := Find(top, dirs)
	must(t, err)
	for _, s := range all {
		delete(argued, s.ID)
	}
	for id := range argued {
		t.Errorf("argued is %s, which no code has", id)
	}
}

// parallel calls f for all binaries, one after the other; what f gives to each runs -jobs at a
// time.
func parallel(bins []Binary, f func(b *Binary, each func(func()))) {
	work := make(chan func())
	var workers sync.WaitGroup
	for range *jobs {
		workers.Go(func() {
			for do := range work {
				do()
			}
		})
	}
	for i := range bins {
		f(&bins[i], func(do func()) { work <- do })
	}
	close(work)
	workers.Wait()
}

// commit is the seed of a run that names none; outside of a repository it is fixed.
func commit(top string) string {
	c := exec.Command("git", "rev-parse", "HEAD")
	c.Dir = top
	out, err := c.Output()
	if err != nil {
		return "no commit"
	}
	return strings.TrimSpace(string(out))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
