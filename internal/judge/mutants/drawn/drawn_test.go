package drawn

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	jobs   = flag.Int("jobs", 2, "test processes at a time")
	report = flag.String("report", "", "write the report into this file as well")
	least  = flag.Float64("least", 0.9, "the share of the faults, of those not equivalent, that must be noticed")
)

// rooms are the engine and its judges.
var rooms = []string{"lock", "lock/extentio", "lock/workqueue", "sched/explore", "blockdev", "blockdev/dm", "format",
	"meta/volumes", "meta/ctree", "meta/spaceinfo", "meta/extenttree", "meta/qgroup", "meta/transaction", "meta/fstree",
	"data/pagecache", "data/extentmap", "data/ordered", "data/inode", "data/place", "data/delalloc", "data/fileread", "data/finish",
	"data/writeback", "data/zero", "data/treelog", "iopath", "iopath/policy", "iopath/buffered", "iopath/direct", "iopath/setsize",
	"iopath/fallocate", "iopath/reflink", "iopath/fsync", "fs", "uring", "aio", "judge/oracle", "judge/crash", "progs/check"}

// battery are the packages whose tests must notice beside those of the fault's own.
var battery = []string{"fs", "data/treelog", "meta/qgroup", "iopath/direct", "judge/crash", "progs/check", "uring", "data/writeback", "study/scenario"}

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
	var dirs []string
	for _, r := range rooms {
		dirs = append(dirs, "internal/"+r)
	}
	all, err := Find(top, dirs)
	must(t, err)
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
	pkgs := map[string]bool{}
	for _, s := range sites[:min(n, len(sites))] {
		pkgs["./"+s.Dir()] = true
	}
	for _, b := range battery {
		pkgs["./internal/"+b] = true
	}
	var list []string
	for p := range pkgs {
		if names, _ := filepath.Glob(filepath.Join(top, p, "*_test.go")); len(names) > 0 {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	dir := t.TempDir()
	sites, bins, err := Build(dir, top, sites, n, list)
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
					reach[n] = append(reach[n], test)
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
	for _, r := range rooms {
		dirs = append(dirs, "internal/"+r)
	}
	all, err := Find(filepath.FromSlash("../../../.."), dirs)
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
