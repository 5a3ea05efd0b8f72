package drawn

import (
	"crypto/sha256"
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

	"btrlab/internal/judge/noticed"
	"btrlab/internal/shard"
)

var (
	draw   = flag.Int("draw", 0, "draw so many faults and plant them")
	seed   = flag.String("seed", "", "by which they are drawn; empty is the commit")
	only   = flag.String("only", "", "plant the faults whose identities are the lines of this file, whatever the seed")
	rooms  = flag.String("rooms", "", "draw only from the packages, or files, that this regular expression names, without internal/")
	jobs   = flag.Int("jobs", 2, "test processes at a time")
	report = flag.String("report", "", "write the report into this file as well")
	part   = flag.String("shard", "", "plant the part I of N of the faults, as I/N with I from 0, and write it to -out")
	out    = flag.String("out", "", "the file of a shard, which btrlab merge joins with the others; one that is there goes on")
	least  = flag.Float64("least", 0.4, "the share of the faults, of those not equivalent, that must be noticed")
)

// engine are the rooms whose promises other rooms judge: the engine and its judges.
var engine = []string{"lock", "lock/extentio", "lock/workqueue", "sched/explore", "blockdev", "blockdev/dm", "blockdev/guest", "format",
	"meta/volumes", "meta/ctree", "meta/spaceinfo", "meta/extenttree", "meta/qgroup", "meta/transaction", "meta/fstree", "meta/relocation",
	"data/pagecache", "data/extentmap", "data/ordered", "data/inode", "data/place", "data/delalloc", "data/fileread", "data/finish",
	"data/writeback", "data/zero", "data/treelog", "policy", "iopath", "iopath/buffered", "iopath/direct", "iopath/setsize",
	"iopath/fallocate", "iopath/reflink", "iopath/fsync", "fs", "uring", "aio", "judge/oracle", "judge/crash", "progs/check", "progs/repair"}

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
	"internal/progs/check":        {"progs/repair"},
	"cmd/btrlab":                  {"cli"},
	"internal/script":             {"cli"},
	"internal/cli/app":            {"cli"},
	"internal/cli/image":          {"cli"},
	"internal/cli/serve":          {"cli"},
	"internal/cli/measure":        {"cli"},
	"internal/cli/study":          {"cli"},
	"internal/cli/learn":          {"cli"},
}

// verbs are the scripts of the command line (testdata/script) that judge a room by what a verb
// promises: they are asked about a fault that the tests of the room do not notice.
var verbs = map[string][]string{
	"internal/transfer":        {"attrs", "files", "fault", "restore", "tree", "send"},
	"internal/sendstream":      {"send"},
	"internal/compress":        {"compress", "property"},
	"internal/mount":           {"mount"},
	"internal/nbd":             {"serve"},
	"internal/nbd/filedisk":    {"serve"},
	"internal/measure/served":  {"serve"},
	"internal/progs/rescue":    {"rescue", "log", "damaged"},
	"internal/progs/mkfs":      {"mkfs", "rootdir", "devices", "reproducible"},
	"internal/progs/dump":      {"dump"},
	"internal/progs/image":     {"dump", "rescue", "fsck"},
	"internal/progs/check":     {"repair", "damaged", "fsck"},
	"internal/progs/repair":    {"repair", "damaged", "fsck"},
	"internal/judge/conform":   {"conform"},
	"internal/judge/crash":     {"crash"},
	"internal/study/wrecks":    {"fsck"},
	"internal/study/practice":  {"practice"},
	"internal/blockdev/dm":     {"fault"},
	"internal/measure/gantt":   {"gantt"},
	"internal/measure/profile": {"gantt"},
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

// near are the packages whose tests are asked first about a fault in the package dir.
func near(dir string) []string {
	list := []string{dir}
	for _, b := range elsewhere[dir] {
		list = append(list, "internal/"+b)
	}
	return list
}

// cli has the scripts.
const cli = "internal/cli"

// far are those that are asked about a fault that is not noticed yet.
func far(dir string) []string {
	var list []string
	if slices.Contains(engine, strings.TrimPrefix(dir, "internal/")) {
		for _, b := range battery {
			if b = "internal/" + b; b != dir {
				list = append(list, b)
			}
		}
	}
	if verbs[dir] != nil {
		list = append(list, cli)
	}
	return list
}

// judges reports whether the test of a package that guards dir is asked: of the command line a room
// has its scripts only.
func judges(dir, pkg, test string) bool {
	if pkg != cli || verbs[dir] == nil {
		return true
	}
	script, ok := strings.CutPrefix(test, scripts+"/")
	return ok && slices.Contains(verbs[dir], script)
}

// tested are the packages with tests that g names for faults, as go test takes them.
func tested(top string, left []*Outcome, g func(dir string) []string) []string {
	var list []string
	for _, o := range left {
		for _, pkg := range g(o.Dir()) {
			if names, _ := filepath.Glob(filepath.Join(top, pkg, "*_test.go")); len(names) > 0 {
				list = append(list, "./"+pkg)
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
	for d, names := range verbs {
		if !slices.Contains(dirs, d) {
			t.Errorf("scripts judge %s, which is not there", d)
		}
		for _, s := range names {
			if _, err := os.Stat(filepath.Join(top, "testdata/script", s+".txtar")); err != nil {
				t.Error(err)
			}
		}
	}
	for _, d := range dirs {
		tests := 0
		for _, g := range append(near(d), far(d)...) {
			names, err := filepath.Glob(filepath.Join(top, g, "*_test.go"))
			must(t, err)
			tests += len(names)
		}
		if tests == 0 && !strings.HasPrefix(d, "cmd/") {
			t.Errorf("no test guards %s", d)
		}
	}
}

// Faults that nobody chose, drawn by a seed; make bench draws a thousand.
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
	if *part != "" {
		shardOfDrawn(t, top, sites[:min(n, len(sites))], argued, noticed.Asked{Draw: n, Seed: by, Rooms: *rooms, Least: *least})
		return
	}
	began := time.Now()
	since := func(what string, args ...any) {
		fmt.Printf("%5.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(what, args...))
	}
	dir := t.TempDir()
	sites, overlay, err := Build(dir, top, sites, n)
	must(t, err)
	since("%d of %d sites, drawn by %q", len(sites), len(all), by)
	outcomes := make([]Outcome, len(sites))
	for i, s := range sites {
		outcomes[i] = Outcome{Site: s, Verdict: noticed.Unreached, Argued: argued[s.ID]}
	}
	// The tests of a fault's own package first; the battery is for what these do not notice.
	for _, g := range []func(dir string) []string{near, far} {
		var left []*Outcome
		for i := range outcomes {
			if o := &outcomes[i]; !o.Verdict.Noticed() && len(g(o.Dir())) > 0 {
				left = append(left, o)
			}
		}
		reach := reaching(t, dir, top, overlay, outcomes, left, g, since)
		work := make(chan *Outcome)
		var mu sync.Mutex
		var workers sync.WaitGroup
		done := 0
		for range *jobs {
			workers.Go(func() {
				for o := range work {
					from, tests := time.Now(), reach[o.nth]
					if len(tests) > 0 {
						o.Verdict, o.By = Try(o.Site, tests)
					}
					o.Tests, o.Took = o.Tests+len(tests), o.Took+time.Since(from)
					mu.Lock()
					done++
					since("%d of %d, %s  %s %s", done, len(left), o.ID, o.Verdict, o.By)
					mu.Unlock()
				}
			})
		}
		for _, o := range left {
			work <- o
		}
		close(work)
		workers.Wait()
	}

	text := fmt.Sprintf("drawn by %q\n%s", by, noticed.Table(Faults(outcomes)))
	fmt.Print("\n", text)
	if *report != "" {
		must(t, os.MkdirAll(filepath.Dir(*report), 0o755))
		must(t, os.WriteFile(*report, []byte(text), 0o644))
	}
	for _, o := range noticed.Wrong(Faults(outcomes)) {
		t.Errorf("%s is argued to be equivalent (%s), and %s notices it", o.ID, o.Argued, o.By)
	}
	if s := noticed.Share(Faults(outcomes)); s < *least {
		t.Errorf("%.1f %% noticed, want %.0f %%", 100*s, 100**least)
	}
}

// reaching links the tests that g names for the faults of left, and returns which of them reach
// which fault, by its number.
func reaching(t *testing.T, dir, top, overlay string, outcomes []Outcome, left []*Outcome, g func(dir string) []string, since func(string, ...any)) [][]Test {
	t.Helper()
	bins, err := Link(dir, top, overlay, tested(top, left, g))
	must(t, err)
	since("%d test binaries for %d of them", len(bins), len(left))
	reach := make([][]Test, len(outcomes)+1)
	var mu sync.Mutex
	parallel(bins, func(b *Binary, each func(func())) {
		names, err := b.Tests()
		must(t, err)
		for _, name := range names {
			asked := func(o *Outcome) bool {
				return slices.Contains(g(o.Dir()), b.Dir()) && judges(o.Dir(), b.Dir(), name)
			}
			if !slices.ContainsFunc(left, asked) {
				continue
			}
			each(func() {
				test, at, err := b.Reach(name, dir)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				for _, n := range at {
					if asked(&outcomes[n-1]) {
						reach[n] = append(reach[n], test)
					}
				}
			})
		}
	})
	since("it is known which test reaches which site")
	return reach
}

// shardOfDrawn plants a part of the faults. A whole draw takes others for those that do not
// compile, which no shard can know of the others: here such a fault has a verdict of its own.
func shardOfDrawn(t *testing.T, top string, sites []*Site, argued map[string]string, asked noticed.Asked) {
	p, err := shard.Parse(*part)
	must(t, err)
	if *out == "" {
		t.Fatal("bad -out, have none want the file of the shard")
	}
	sum := sha256.New()
	for _, s := range sites {
		fmt.Fprintln(sum, s.ID)
	}
	asked.Sites = fmt.Sprintf("%x", sum.Sum(nil)[:8])
	w, err := shard.New(noticed.Work, "tree "+commit(top), asked, len(sites))
	must(t, err)
	var mine []*Site
	for n := range p.Items(len(sites)) {
		mine = append(mine, sites[n])
	}
	x := sync.OnceValue(func() *division { return plantAll(t, top, mine, argued) })
	done, err := shard.Do(*out, w, p, shard.Doing{Jobs: *jobs, Item: func(n int) (any, error) { return x().fault(sites[n], argued), nil },
		Progress: func(done, all int) { fmt.Printf("%d of %d\n", done, all) }})
	must(t, err)
	if !done.Whole || t.Failed() {
		t.Errorf("%s has %d of %d faults", *out, done.Items, done.All)
	}
}

// division is a build with the faults of a shard, and the tests that are asked about them: first
// those near a fault, then, of what these do not notice, those far from it.
type division struct {
	outcomes []Outcome
	reach    [2]func() [][]Test
}

func plantAll(t *testing.T, top string, sites []*Site, argued map[string]string) *division {
	dir, began := t.TempDir(), time.Now()
	since := func(what string, args ...any) {
		fmt.Printf("%5.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(what, args...))
	}
	sites, overlay, err := Build(dir, top, sites, len(sites))
	must(t, err)
	since("%d sites build", len(sites))
	x := &division{outcomes: make([]Outcome, len(sites))}
	var left []*Outcome
	for i, s := range sites {
		x.outcomes[i] = Outcome{Site: s, Verdict: noticed.Unreached, Argued: argued[s.ID]}
		left = append(left, &x.outcomes[i])
	}
	for i, g := range []func(dir string) []string{near, far} {
		x.reach[i] = sync.OnceValue(func() [][]Test { return reaching(t, dir, top, overlay, x.outcomes, left, g, since) })
	}
	return x
}

// fault plants the fault of site s.
func (x *division) fault(s *Site, argued map[string]string) noticed.Fault {
	i := slices.IndexFunc(x.outcomes, func(o Outcome) bool { return o.Site == s })
	if i < 0 {
		o := Outcome{Site: s, Verdict: noticed.Unbuilt, Argued: argued[s.ID]}
		return o.Fault()
	}
	o := x.outcomes[i] // a copy: reaching reads the others
	for k, g := range []func(dir string) []string{near, far} {
		if o.Verdict.Noticed() || len(g(o.Dir())) == 0 {
			continue
		}
		tests := x.reach[k]()[s.nth]
		if len(tests) > 0 {
			o.Verdict, o.By = Try(s, tests)
		}
		o.Tests += len(tests)
	}
	return o.Fault()
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
