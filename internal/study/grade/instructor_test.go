package grade

// The tests of what is under instructor. This file is not handed out, because it holds solutions:
// see package handout.

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/scenario"
	unlocked "btrlab/labs/03-unlocked"
	truncaterace "btrlab/labs/04-truncate-race"
	ring "btrlab/labs/08-ring"
	"btrlab/labs/kit"
)

var rewrite = flag.Bool("rewrite", false, "write the schedules of lab 1's solution anew, as the explorer finds them")

// TestRewrite writes the answers of lab 1 when the engine's steps have moved.
func TestRewrite(t *testing.T) {
	if !*rewrite {
		t.Skip("only with -rewrite")
	}
	var b strings.Builder
	b.WriteString("# Found by go test ./internal/study/grade -run Rewrite -rewrite.\n")
	for _, k := range lab1 {
		answer := map[string]string{"keep-the-truncate": "unlocked-drain", "keep-the-writes": "range-lock"}[k.name]
		if !k.keeps {
			answer = witness(t, &k)
		}
		fmt.Fprintf(&b, "%s = %s\n", k.name, answer)
	}
	if err := os.WriteFile(filepath.Join(lab(t, 1).Dir(root(t)), "instructor", "_solution", "schedules.txt"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// witness is a schedule that task k accepts: the first one that names one step, else the first that
// names two.
func witness(t *testing.T, k *task1) string {
	try := func(schedule string) bool {
		var r Row
		if err := k.judge(schedule, &r, nil); err != nil {
			t.Fatal(err)
		}
		return r.Pass
	}
	const steps = 60
	tasks := len(must(k.scenario).Tasks)
	var first []string
	for step := range steps {
		for task := range tasks {
			if first = append(first, fmt.Sprintf("%d:%d", step, task)); try(first[len(first)-1]) {
				return first[len(first)-1]
			}
		}
	}
	for i, one := range first {
		for _, two := range first[i+1:] {
			if try(one + "," + two) {
				return one + "," + two
			}
		}
	}
	t.Fatalf("%s: no schedule of at most two steps", k.name)
	return ""
}

// TestPrinted: no schedule that a student can copy from what the project prints is an answer of lab
// 1, or of a swap of lab 4: not those in README, labs/README, the text and the files of the labs,
// the help of the verbs and the museum's exhibit, and not what explore prints for a scenario of
// writes and truncates.
func TestPrinted(t *testing.T) {
	r := root(t)
	printed := map[string]string{}
	schedule := regexp.MustCompile(`\b\d+:\d(,\d+:\d)*\b`)
	for _, glob := range []string{"README.md", "Makefile", "labs/README.md", "labs/*/README.md", "labs/*/hints.md", "labs/*/*.txt", "labs/*/*.go", "labs/reference/*.md", "notebooks/*.ipynb", "internal/cli/*.go"} {
		files, err := filepath.Glob(filepath.Join(r, filepath.FromSlash(glob)))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", glob, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range schedule.FindAllString(string(b), -1) {
				printed[s] = f
			}
		}
	}
	if printed["11:1"] == "" || len(printed) < 6 {
		t.Fatalf("printed is only %v", printed)
	}
	// those with the operations of these labs; the shortest schedules are found at once, if any
	for _, s := range scenario.All() {
		other := func(k scenario.Task) bool {
			return slices.ContainsFunc(k.Ops, func(o scenario.Op) bool {
				return o.Kind != scenario.OpWrite && o.Kind != scenario.OpTruncate || o.Direct || o.Nowait || o.Ring != 0
			})
		}
		if slices.ContainsFunc(s.Tasks, other) {
			continue
		}
		for _, pol := range []string{"unlocked", "unlocked-drain"} {
			x, err := scenario.Run(s, policy.MustParse(pol), scenario.Options{Config: func(c *explore.Config) { c.Schedules = 60 }})
			if err != nil {
				t.Fatal(s.Name, err)
			}
			if x.Schedule != "" {
				printed[x.Schedule] = "explore " + s.Name + " --policy " + pol
			}
		}
	}
	if printed["16:1"] == "" {
		t.Errorf("explore prints %v", printed)
	}
	for _, q := range (&Truncate{order: drainFirst}).swaps() {
		for _, w := range races(nil) {
			for s, where := range printed {
				var row Row
				if err := q.replay(w.name+"="+s, &row); err != nil || row.Violated {
					t.Errorf("%s: %q of %s breaks %s: %s %v", q.name, s, where, w.name, row.Result, err)
				}
			}
		}
	}
	for _, k := range lab1 {
		if k.keeps {
			continue
		}
		all := maps.Clone(printed) // with what is found in the scenario of the task
		explored := func(pol, where string) {
			x, err := scenario.Run(must(k.scenario), policy.MustParse(pol), scenario.Options{})
			if err != nil || x.Schedule == "" {
				t.Fatalf("%s under %s: %+v, %v", k.scenario, pol, x, err)
			}
			all[x.Schedule] = where
		}
		explored(k.policy, "explore "+k.scenario)
		for _, e := range scenario.Museum {
			if e.Scenario == k.scenario {
				explored(e.Broken, fmt.Sprint("museum ", e.Number))
			}
		}
		for s, where := range all {
			var row Row
			if err := k.judge(s, &row, nil); err != nil || row.Pass {
				t.Errorf("%s: %q of %s is an answer: %s %v", k.name, s, where, row.Result, err)
			}
		}
	}
}

// rejects is what matches the first row that rejects a mutant, where it matters to the student.
var rejects = map[string]string{
	"12/no-recheck":           `kit\.WriteOp\.Begin without i_rwsem for writing|^truncate-`,
	"12/drains-late":          `^truncate-race: violated \(oracle\)`,
	"12/keeps-size":           `^truncate-race: violated \(oracle\)`,
	"12/shares-all":           `^two-writers-same: violated \(oracle\)`,
	"12/counts-pages-wrong":   `^two-writers-same: violated \(oracle\)`,
	"12/punches-shared":       `^long-write-punch: violated \(oracle\)`,
	"12/range-first":          `^truncate-race: violated \(lock order\)`,
	"12/never-drains":         `^direct-read-truncate: violated \(oracle\)`,
	"12/short-range":          `^two-writers-`,
	"12/keeps-op":             `kit\.ReadOp\.Copy (after the operation|by another task)`,
	"12/copies-op":            `^policy\.go:\d+: copies \*w`,
	"12/global":               `^policy\.go:\d+: has a variable of the package`,
	"12/plain-count":          `^policy\.go:\d+: field writers is a plain int`,
	"12/own-side":             `^policy\.go:\d+: uses kit\.PolicyRunner, want only Task`,
	"12/always-alone":         `^1\.00 times locked`,
	"02/one-writer":           `^writers with \[4 4\] latencies: Ops is 4, want 8`,
	"02/percentiles-averaged": `^writers with \[4 4\] latencies: P50`,
	"02/mean-for-median":      `^writers with \[2\] latencies: P50`,
	"02/rates-of-latencies":   `^writers with \[1\] latencies: PerSecond`,
	"02/lower-edges":          `off by 1/103, want 1/128`,
	"02/coordinated-omission": `^request 100 was due at 4000000 ns, began at`,
	"02/closed-loop":          `^request \d+ begins \d+ ns after it could`,
	"02/counts-warm-up":       `^400 latencies of 400 requests`,
	"02/nobody-waits":         `^10 writers: predicted .* writes a second`,
	"02/waits-for-itself":     `^6 writers: predicted .* writers that wait`,
	"02/wait-twice":           `^1 writers: predicted .* writes a second`,
	"02/stops-early":          `^7 writers, want 8`,
	"02/one-slice":            `^measure\.go:\d+: has a variable of the package`,
	"03/keeps-the-size":       `^unlock\.go:\d+: has a variable of the package`,
	"03/up-to-eof":            `^CanUnlock\(4096, 4096, 8192\) is false, want true`,
	"03/one-too-many":         `^CanUnlock\(4096, 4097, 8192\) is true, want false`,
	"03/starts-only":          `^CanUnlock\(4096, 4097, 8192\) is true, want false`,
	"03/wraps":                `^CanUnlock\(18446744073709547520, 8192, 1099511627776\) is true`,
	"03/uncounted":            `^violated \(oracle\): truncate 2 to 4K has returned`,
	"03/counts-late":          `^violated \(oracle\): truncate 2 to 4K has returned`,
	"03/trusts-a-look":        `^violated \(oracle\): truncate 2 to 4K has returned`,
	"03/keeps-the-answer":     `^violated \(lock order\)`,
	"03/extends-shared":       `^violated \(lock order\)`,
	"03/locks-counted":        `^violated \(deadlock\)`,
	"03/no-recheck":           `^violated \(oracle\): write 1 \[4K, 8K\) has returned, yet at the end bytes`,
	"03/stale-append":         `^violated \(oracle\): write 1 \[4K, 8K\) has returned, yet at the end bytes`,
	"03/always-locks":         `^0 of 40 writes inside EOF copied without i_rwsem`,
	"03/copies-shared":        `^0 of 40 writes inside EOF copied without i_rwsem`,
	"00/all-never":            `^it can be broken, with 1 preemption: x is 1 at the end, want 2`,
	"00/breaks-the-lock":      `^this is no schedule of the level: step 4: task 1 cannot run`,
	"00/one-lost":             `^this schedule breaks nothing: x is 2 or 3 at the end`,
	"00/twice":                `^line 13: one-lock comes twice`,
	"01/printed":              `^found, but a write has returned before the truncate`,
	"01/not-the-last":         `^found, with 1 preemption; a later one alone does it, too`,
	"01/one-step-late":        `^nothing is violated by this schedule`,
	"01/locked-drains-keeps":  `^locked\+SETSIZE_DRAIN_FIRST keeps i_rwsem for the whole write`,
	"04/no-drain":             `^policy\.DIOWait is missing`,
	"04/endless":              `^setsize\.go:(9|10): Steps took 2s of processor time`,
	"05/plain-field":          `^rangelock\.go:16: field held is a plain \[\]kit\.Range`,
	"05/no-mutex-plain":       `^rangelock\.go:16: field held is a plain \[\]kit\.Range`,
	"05/no-mutex":             `^violated \(data race\)`,
	"05/stores-without":       `^violated \(data race\)`,
	"05/no-init":              `rangelock\.go:33: kit\.Mutex\.Lock before Init`,
	"05/locks-twice":          `rangelock\.go:45: kit\.Mutex\.Lock by the task that holds it`,
	"05/unlocks-twice":        `rangelock\.go:50: kit\.Mutex\.Unlock by a task that does not hold the mutex`,
	"05/spins":                `^rangelock\.go:(28, called in rangelock\.go:)?35: lock-identical took 10s of processor time`,
	"05/busy-wait":            `^violated \(livelock\): 5000 steps`,
	"05/one-for-all":          `whoever comes second may not wait for the first`,
	"07/flushes":              `^violated \(nowait sleep\)`,
	"07/keeps-reservation":    `^violated \(undo\): 1 reservations are left after resource temporarily unavailable`,
	"07/enospc-told":          `^violated \(undo\): the caller is told`,
	"07/all-again":            `^violated \(undo\): the caller is told resource temporarily unavailable, want input/output error`,
	"07/all-punted":           `^violated \(undo\): the caller is told resource temporarily unavailable, want that it is written`,
	"07/starts-unlocked":      `kit\.NowaitExtent\.Start without the range`,
	"07/releases-twice":       `kit\.NowaitExtent\.Release after Start`,
	"07/told-unwritten":       `Extent has returned nil, and nothing was started`,
	"07/waits-for-range":      `^violated \(nowait sleep\)`,
	"07/asks-unlocked":        `kit\.NowaitExtent\.Place without the range`,
	"07/keeps-range":          `^violated \(undo\): the range is still locked after resource temporarily unavailable`,
	"07/asks-first":           `^violated \(oracle\)`,
	"07/asks-twice":           `^0 of 64 answered EAGAIN, want 0; 6\.00 tree searches of each, want at most 3`,
	"08/forgets":              `Submit has returned, and the request has neither`,
	"08/sleeps":               `kit\.Request\.Transfer by the submitting task`,
	"08/short-is-enough":      `^violated \(completion\): request 0 was told 3 bytes, want 8 bytes`,
	"08/restarts":             `^violated \(completion\): byte 0 of file 0 was written 2 times, want 1`,
	"08/stalls":               `^violated \(livelock\)`,
	"08/nowait-punted":        `nobody may sleep for a request with RWF_NOWAIT`,
	"08/queued-told":          `kit\.Request\.Advance after EIOCBQUEUED`,
	"08/told-twice":           `kit\.Request\.Done after Punt`,
	"08/told-unwritten":       `^violated \(completion\): request 0 was told 4 bytes, and byte 0 of them is not in the file`,
	"08/all-punted":           `times force_async`,
	"09/sums-held":            `^violated \(lock order\): .*acquires tree_log .* while it holds tree_log`,
	"09/no-sums":              `^violated \(oracle\): .*csum\.missing`,
	"09/never-drops":          `^violated \(oracle\): an fsync has committed`,
	"09/drops-first-only":     `^violated \(oracle\): an fsync has committed`,
	"09/gives-up":             `^violated \(oracle\): an fsync has committed`,
	"09/commits-again":        `^violated \(oracle\): an fsync has committed`,
	"09/drops-and-returns":    `Put has returned nil, and the item is not in the log`,
	"09/ignores-room":         `kit\.LogItem\.Copy where no empty item is`,
	"09/tells-nothing":        `Put has returned nil, and the item is not in the log`,
	"09/keeps-path":           `Put has returned with the path held`,
	"09/lets-go-first":        `kit\.LogItem\.Release of an empty item`,
	"09/unprepared":           `kit\.LogItem\.Copy before Prepare`,
	"09/fills-in-place":       `16\.4 steps with the leaf locked, want at most 8`,
	"09/prepares-held":        `1917 ns of virtual time, want 1874`,
	"10/never-alone":          `^violated \(oracle\)`,
	"10/no-drain":             `^violated \(oracle\)`,
	"10/marks-unlocked":       `^violated`,
	"10/waits-for-another":    `^violated \(livelock\)`,
	"10/no-second-look":       `Submit of a write that ends beyond EOF`,
	"10/looks-before":         `Wait, and nothing is in flight`,
	"10/forgets-cache":        `neither Submit nor Cache`,
	"10/upgrades":             `Alone by a write that has i_rwsem`,
	"10/no-wait":              `returned before the end of its write`,
	"10/keeps-lock":           `returned with i_rwsem held`,
	"10/drains-shared":        `Drain with i_rwsem shared`,
	"10/always-alone":         `whoever comes second may not wait for the first`,
	"10/always-cache":         `go through the page cache`,
	"04/overwrites-presets":   `^setsize\.go:\d+: changes policy\.Presets`,
	"04/other-names":          `^setsize\.go:\d+: uses policy\.Presets, want only SetsizeStep`,
	"05/charges-back":         `t\.Charge undefined`,
	"05/sleeps":               `t\.Sleep undefined`,
	"05/clears-held":          `t\.HeldLocks undefined`,
	"05/embeds-task":          `undefined`,
	"05/asks-interface":       `^rangelock\.go:\d+: makes an interface of t`,
	"05/makes-task":           `kit\.Mutex\.Lock without a task`,
	"05/own-explorer":         `uses kit\.Explore, want only Task`,
	"05/ends-early":           `^violated \(panic\)|rangelock\.go:\d+: done`,
	"07/zeroes-extent":        `^extent\.go:\d+: copies \*x`,
	"08/puts-back":            `^ring\.go:\d+: copies \*q`,
	"08/runs-itself":          `uses kit\.SubmitPath, want only Task`,
	"10/copies-write":         `^sectors\.go:\d+: copies \*w`,
	"03/big-uncounted":        `^violated \(lock order\): .*relies on i_rwsem`,
	"05/big-unlocked":         `^violated \(exclusion\): task 1 got`,
	"05/gives-up":             `^violated \(exclusion\): writer \d got`,
	"12/big-unlocked":         `^far-truncate-race: violated \(`,
	"05/nothing":              `^violated \(exclusion\): task 1 got \[0, 8\) while task 0 holds \[0, 8\)`,
}

// TestSolutionsAndMutants: every solution gets full marks and every planted mistake is rejected.
// Labs with Go code build a program for each, which takes minutes: make labs sets BTRLAB_LABS.
func TestSolutionsAndMutants(t *testing.T) {
	r := root(t)
	var mu sync.Mutex
	scores := map[string]float64{}
	score := func(name string, x *Report) {
		mu.Lock()
		defer mu.Unlock()
		scores[name] = x.Score
	}
	t.Cleanup(func() { grows(t, scores) })
	for _, l := range Labs {
		if l.code != nil && os.Getenv("BTRLAB_LABS") == "" {
			t.Logf("lab %02d: skipped, make labs grades it", l.N)
			continue
		}
		t.Run(fmt.Sprintf("%02d/starter", l.N), func(t *testing.T) {
			t.Parallel()
			x, err := Grade(t.Context(), r, l, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if x.Pass || x.Score != 0 {
				t.Errorf("the starter has %g points\n%s", x.Score, text(x))
			}
		})
		instructor := filepath.Join(l.Dir(r), "instructor")
		solutions, err := filepath.Glob(filepath.Join(instructor, "_solution*"))
		if err != nil {
			t.Fatal(err)
		}
		for i, dir := range solutions {
			t.Run(fmt.Sprintf("%02d/%s", l.N, filepath.Base(dir)[1:]), func(t *testing.T) {
				t.Parallel()
				o := Options{Dir: dir}
				if i > 0 {
					o.Schedules = 40 // the first is searched in full
				}
				x, err := Grade(t.Context(), r, l, o)
				if err != nil {
					t.Fatal(err)
				}
				if !x.Pass || x.Score != x.Max || x.Max+x.Teacher != 100 {
					t.Errorf("the solution has %g of %g points\n%s", x.Score, x.Max, text(x))
				}
			})
		}
		mutants, err := os.ReadDir(filepath.Join(instructor, "_mutants"))
		if err != nil {
			t.Fatal(err)
		}
		if len(mutants) < 5 {
			t.Errorf("lab %d has %d mutants, want at least 5", l.N, len(mutants))
		}
		for _, m := range mutants {
			t.Run(fmt.Sprintf("%02d/%s", l.N, m.Name()), func(t *testing.T) {
				t.Parallel()
				o := Options{Dir: filepath.Join(instructor, "_mutants", m.Name())}
				if l.essay != nil { // many scenarios: whoever rejects need not see the rest
					o.First, o.Schedules = true, 100
				}
				x, err := Grade(t.Context(), r, l, o)
				if err != nil {
					t.Fatal(err)
				}
				if x.Pass || x.Score >= 100 {
					t.Errorf("the mutant is accepted\n%s", text(x))
				}
				if !o.First { // else the rows after the one that rejects are not judged
					score(fmt.Sprintf("%02d/%s", l.N, m.Name()), x)
				}
				t.Logf("%g of %g points", x.Score, x.Max)
				for _, row := range x.Rows {
					if !row.Pass {
						first, _, _ := strings.Cut(row.Result, "\n")
						if want, ok := rejects[fmt.Sprintf("%02d/%s", l.N, m.Name())]; ok && !regexp.MustCompile(want).MatchString(row.Result) {
							t.Errorf("rejected with %q, want %q", row.Result, want)
						}
						t.Logf("%s: %s", row.Name, first)
						if row.Schedule != "" {
							t.Logf("  %s", row.Replay)
						}
						break
					}
				}
			})
		}
	}
}

// better are pairs of wrong solutions of which the second has more right, so it has more points.
var better = [][2]string{
	{"10/always-alone", "10/no-drain"},
	{"10/upgrades", "10/never-alone"},
	// gives-up does no more than a function that only returns errors
	{"09/keeps-path", "09/drops-and-returns"},
	{"09/gives-up", "09/drops-and-returns"},
	{"08/sleeps", "08/stalls"},
	{"07/flushes", "07/keeps-range"},
	{"07/keeps-range", "07/edquot-told"},
	{"06/no-look", "06/if-for-a-for"},
	{"05/nothing", "05/looks-once"}, // an if for a for
	{"05/looks-once", "05/unlocks-all"},
	{"04/as-posted", "04/items-first"},
	{"04/swaps-unsolved", "04/swaps-of-all"},
	{"04/swaps-of-all", "04/swaps-named"},
	{"04/swaps-never", "04/swaps-named"},
	{"04/items-first", "04/ordered-last"},
}

// grows holds the points of wrong solutions against what is right in them: in every lab that was
// graded one has some of the points, and of the pairs in better the second one has more.
func grows(t *testing.T, scores map[string]float64) {
	part := map[string]bool{}
	for name, x := range scores {
		part[name[:2]] = part[name[:2]] || x > 0
	}
	for lab, some := range part {
		if !some {
			t.Errorf("lab %s: every wrong solution has 0 points: nothing is said for what is right in them", lab)
		}
	}
	for _, p := range better {
		if less, more := scores[p[0]], scores[p[1]]; part[p[0][:2]] && less >= more {
			t.Errorf("%s has %g points and %s %g, want more", p[0], less, p[1], more)
		}
	}
}

// TestOrders runs all 120 orders of the five steps: the list of those that the workloads accept is
// what instructor/NOTES.md says.
func TestOrders(t *testing.T) {
	if os.Getenv("BTRLAB_LABS") == "" {
		t.Skip("takes a minute: make labs")
	}
	var accepted []string
	// the one that rejected last comes first: it mostly rejects the next order, too
	names := []string{}
	for _, w := range races(nil) {
		names = append(names, w.name)
	}
	var try func(order, left []policy.SetsizeStep)
	try = func(order, left []policy.SetsizeStep) {
		for i, s := range left {
			rest := append(append([]policy.SetsizeStep(nil), left[:i]...), left[i+1:]...)
			try(append(order[:len(order):len(order)], s), rest)
		}
		if len(left) > 0 {
			return
		}
		all := races(order)
		for i, name := range names {
			var r Row
			w := all[slices.IndexFunc(all, func(w workload) bool { return w.name == name })]
			if err := w.explore(some(0), &r); err != nil {
				t.Fatal(err)
			}
			if !r.Pass {
				names = slices.Insert(slices.Delete(names, i, i+1), 0, name)
				return
			}
		}
		accepted = append(accepted, fmt.Sprint(order))
	}
	try(nil, truncaterace.Steps())
	want := []string{
		"[dio_wait set_i_size truncate_pages wait_ordered truncate_items]",
		"[dio_wait set_i_size wait_ordered truncate_pages truncate_items]",
		"[dio_wait set_i_size wait_ordered truncate_items truncate_pages]",
	}
	if !slices.Equal(accepted, want) {
		t.Errorf("accepted are\n%s\nwant\n%s", strings.Join(accepted, "\n"), strings.Join(want, "\n"))
	}
}

// TestSectorsJudged: an order that is right gets every row of lab 10: it is together with others in
// a written block, and else alone after those in flight.
func TestSectorsJudged(t *testing.T) {
	send := func(t *kit.Task, w *kit.SectorWrite) {
		sent := w.Submit(t)
		if sent {
			w.Wait(t)
		}
		if w.Unlock(t); !sent {
			w.Cache(t)
		}
	}
	for _, r := range Judge(Sectors{func(t *kit.Task, w *kit.SectorWrite) {
		if w.Share(t); w.Inside(t) && w.Look(t) == kit.Written {
			send(t, w)
			return
		}
		w.Unlock(t)
		if w.Alone(t); !w.Inside(t) {
			w.Unlock(t)
			w.Cache(t)
			return
		}
		w.Drain(t)
		send(t, w)
	}}, &Run{}) {
		if !r.Pass {
			t.Errorf("%s: %s", r.Name, r.Result)
		}
	}
}

// TestNowaitCosts: on the real write path nothing goes to a worker, or everything.
func TestNowaitCosts(t *testing.T) {
	solution := func(t *kit.Task, x *kit.NowaitExtent) error {
		if !x.TryRange(t) {
			return kit.EAGAIN
		}
		err := x.Reserve(t, kit.NoFlush)
		if err == nil {
			if err = x.Place(t); err == nil {
				x.Start(t)
			} else {
				x.Release(t)
			}
		}
		x.UnlockRange(t)
		return err
	}
	for want, extent := range map[string]kit.NowaitPath{"0 of 64 answered EAGAIN, want 0; 3.00 tree searches of each, want at most 3": solution,
		"64 of 64 answered EAGAIN, want 0; 0.00 tree searches of each, want at most 3": func(*kit.Task, *kit.NowaitExtent) error { return kit.EAGAIN }} {
		ok, text, err := Nowait{extent}.costs()
		if err != nil || text != want || ok != strings.HasPrefix(want, "0") {
			t.Errorf("have %v %q %v, want %q", ok, text, err, want)
		}
	}
}

// TestNever: never everywhere knows nothing, and has no points, not even for the levels that
// nothing breaks.
func TestNever(t *testing.T) {
	r, l := root(t), lab(t, 0)
	x, err := Grade(t.Context(), r, l, Options{Dir: filepath.Join(l.Dir(r), "instructor", "_mutants", "all-never")})
	if err != nil || x.Score != 0 || x.Rows[2].Score != 0 || !x.Rows[2].Pass {
		t.Errorf("never: %+v, %v", x, err)
	}
}

// TestNotes: every lab has notes for whoever teaches it.
func TestNotes(t *testing.T) {
	for _, l := range Labs {
		if _, err := os.Stat(filepath.Join(l.Dir(root(t)), "instructor", "NOTES.md")); err != nil {
			t.Error(err)
		}
	}
}

// TestLockingJudged: what the rows of lab 3 ask apart from each other: a right order that keeps the
// lock has no row of speed, and CanUnlock is judged whatever Write does.
func TestLockingJudged(t *testing.T) {
	inside := func(pos, n, isize uint64) bool { return n <= isize && pos <= isize-n }
	locked := func(t *kit.Task, w *kit.LockedWrite) { w.Lock(t); w.Place(t); w.Copy(t); w.Unlock(t) }
	right := func(t *kit.Task, w *kit.LockedWrite) {
		w.Lock(t)
		if !inside(w.Place(t), w.Len(), w.Size(t)) {
			w.Copy(t)
			w.Unlock(t)
			return
		}
		w.Begin(t)
		w.Unlock(t)
		w.Copy(t)
		w.End(t)
	}
	for _, tt := range []struct {
		name string
		s    Locking
		want string // the rows that fail
	}{
		{"right", Locking{inside, right}, ""},
		{"locked", Locking{inside, locked}, " fast-path virtual-time"},
		{"undecided", Locking{func(pos, n, isize uint64) bool { return false }, right}, " decide"},
		{"starter, decided", Locking{inside, unlocked.Write}, " inside-truncate one-byte-beyond appends gap append-truncate far-truncate far-appends fast-path virtual-time"},
	} {
		failed := ""
		for _, r := range Judge(tt.s, &Run{}) {
			if !r.Pass {
				failed += " " + r.Name
			}
			if (r.Score == r.Max) != r.Pass {
				t.Errorf("%s, %s: %g of %g, pass %v", tt.name, r.Name, r.Score, r.Max, r.Pass)
			}
		}
		if failed != tt.want {
			t.Errorf("%s: have%s want%s", tt.name, failed, tt.want)
		}
	}
}

// TestWarmUp: what starts lab 0 has no points, and an answer that wins is kept in its line.
func TestWarmUp(t *testing.T) {
	r, l := root(t), lab(t, 0)
	x, err := Grade(t.Context(), r, l, Options{})
	if err != nil || x.Score != 0 || x.Max != 100 || len(x.Rows) != len(levels.All) {
		t.Fatalf("the starter: %g of %g in %d rows, %v", x.Score, x.Max, len(x.Rows), err)
	}
	dir := t.TempDir()
	b, err := os.ReadFile(filepath.Join(l.Dir(r), l.File))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, l.File), b, 0o644); err != nil {
		t.Fatal(err)
	}
	// the second one takes the place of the first
	for _, answer := range []string{levels.Never, "3:1"} {
		if err := KeepAnswer(dir, levels.All[0], answer); err != nil {
			t.Fatal(err)
		}
	}
	if err := KeepAnswer(dir, levels.All[0], strings.Repeat("1:1,", 20)); err == nil {
		t.Error("an answer that grading refuses is kept")
	}
	won, err := Won(dir)
	if err != nil || len(won) != 1 || !won[levels.All[0].Name] {
		t.Errorf("%v, %v", won, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, l.File))
	if want := strings.Replace(string(b), "lost-update = ?", "lost-update = 3:1", 1); err != nil || string(got) != want {
		t.Errorf("have\n%s\nwant\n%s", got, want)
	}
}

// TestOvertake: what lab 8 says of the order. A write that is done at once may end before an older
// one that a worker has.
func TestOvertake(t *testing.T) {
	s := Ring{kit.SubmitPath{Work: ring.Work, Submit: func(t *kit.Task, q *kit.Request) {
		n, err := q.Try(t)
		if errors.Is(err, kit.EAGAIN) {
			q.Punt(t)
			return
		}
		q.Advance(n)
		q.Complete(t, n, err)
	}}}
	for _, ordered := range []bool{false, true} {
		x := ringWork{beside: true, ordered: ordered, writes: []ringWrite{{n: 4, res: 4}, {at: 4, n: 4, res: 4}}}
		r := Row{}
		w := workload{name: "overtake", program: x.program(s.path())}
		if err := w.explore(some(0), &r); err != nil || r.Violated != ordered || ordered && r.Kind != completion {
			t.Errorf("ordered %v: %v %s, %v", ordered, r.Violated, r.Result, err)
		}
	}
}

// TestRingNowaitParts: with RWF_NOWAIT as many attempts as need no sleep are right, also those
// after a part; a worker, who may sleep, is not.
func TestRingNowaitParts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		submit func(t *kit.Task, q *kit.Request)
		want   string
	}{
		{"one", func(t *kit.Task, q *kit.Request) { n, err := q.Try(t); q.Advance(n); q.Complete(t, q.Done(), err) }, ""},
		{"two", func(t *kit.Task, q *kit.Request) {
			n, _ := q.Try(t)
			q.Advance(n)
			n, _ = q.Try(t)
			q.Advance(n)
			q.Complete(t, q.Done(), nil)
		}, ""},
		{"all", func(t *kit.Task, q *kit.Request) {
			for q.Left() > 0 {
				n, _ := q.Try(t)
				q.Advance(n)
			}
			q.Complete(t, q.Done(), nil)
		}, ""},
		{"none", func(t *kit.Task, q *kit.Request) { q.Complete(t, 0, nil) }, "request 0 was told 0 bytes, want 3 bytes"},
		{"too many", func(t *kit.Task, q *kit.Request) { n, _ := q.Try(t); q.Complete(t, n+1, nil) }, "request 0 was told 4 bytes, and byte 3 of them is not in the file"},
		{"a worker", func(t *kit.Task, q *kit.Request) { n, _ := q.Try(t); q.Advance(n); q.Punt(t) }, "a transfer that may sleep is asked for"},
	} {
		var r Row
		l := Ring{kit.SubmitPath{Submit: tt.submit, Work: ring.Work}}.Workloads()
		w := l[slices.IndexFunc(l, func(w workload) bool { return w.name == "ring-nowait-part" })]
		err := w.explore(some(0), &r)
		if err != nil || r.Violated != (tt.want != "") || !strings.Contains(r.Result, tt.want) {
			t.Errorf("%s: have %q %v, want %q", tt.name, r.Result, err, tt.want)
		}
	}
}

// TestRingJudged: what a completion says is compared with what was asked for and with the file.
func TestRingJudged(t *testing.T) {
	for _, tt := range []struct {
		submit func(t *kit.Task, q *kit.Request)
		want   string
	}{
		{func(t *kit.Task, q *kit.Request) { n, err := q.Try(t); q.Complete(t, n, err) }, ""},
		{func(t *kit.Task, q *kit.Request) { n, err := q.Try(t); q.Complete(t, n-1, err) }, "request 0 was told 3 bytes, want 4 bytes"},
		{func(t *kit.Task, q *kit.Request) { q.Complete(t, q.Left(), nil) }, "request 0 was told 4 bytes, and byte 0 of them is not in the file"},
		{func(t *kit.Task, q *kit.Request) { q.Try(t); n, err := q.Try(t); q.Complete(t, n, err) }, "byte 0 of file 0 was written 2 times, want 1"},
	} {
		r := Row{}
		w := workload{name: "judged", program: ringWork{writes: []ringWrite{{n: 4, res: 4}}}.program(Ring{kit.SubmitPath{Submit: tt.submit}}.path())}
		err := w.explore(some(0), &r)
		if err != nil || r.Violated != (tt.want != "") || tt.want != "" && (r.Kind != completion || !strings.Contains(r.Result, tt.want)) {
			t.Errorf("have %s %q %v, want %q", r.Kind, r.Result, err, tt.want)
		}
	}
}

// TestLogFull: the row of a leaf without room is rejected for what the caller is told, and for an
// item in no place.
func TestLogFull(t *testing.T) {
	insert := func(t *kit.Task, x *kit.LogItem) error {
		x.Prepare(t)
		err := x.Insert(t)
		if err == nil {
			x.Copy(t)
			x.Release(t)
		}
		return err
	}
	for _, tt := range []struct {
		leaf narrowLeaf
		put  kit.LogPath
		want string
	}{
		{narrowLeaf{}, insert, ""},
		{narrowLeaf{insert: errno.EIO}, insert, ""},
		{narrowLeaf{}, func(t *kit.Task, x *kit.LogItem) error { x.Drop(t); x.Fill(t); return nil }, "Fill where no empty item is"},
		{narrowLeaf{insert: errno.EIO}, func(t *kit.Task, x *kit.LogItem) error { x.Insert(t); return nil }, "the item is not in the log"},
		{narrowLeaf{insert: errno.EIO}, func(t *kit.Task, x *kit.LogItem) error { return errno.ENOSPC }, "and Insert had returned input/output error"},
		{narrowLeaf{}, func(t *kit.Task, x *kit.LogItem) error { x.Insert(t); x.Insert(t); return nil }, "kit.LogItem.Insert with a path held"},
		{narrowLeaf{}, func(t *kit.Task, x *kit.LogItem) error { x.Release(t); return nil }, "kit.LogItem.Release without a path"},
	} {
		var r Row
		w := workload{name: "full", program: tt.leaf.program(tt.put)}
		if err := w.explore(some(0), &r); err != nil || r.Violated != (tt.want != "") || !strings.Contains(r.Result, tt.want) {
			t.Errorf("have %q %v want %q", r.Result, err, tt.want)
		}
	}
}

// TestLogJudged: an order that leaves what the log has of a range keeps what fsync promises,
// because the log is refused and the fsync commits. The row says so, and its fsyncs are not counted
// as logged.
func TestLogJudged(t *testing.T) {
	s := LogItem{func(t *kit.Task, x *kit.LogItem) error {
		x.Prepare(t)
		if err := x.Sums(t); err != nil {
			return err
		}
		if err := x.Insert(t); err != nil {
			return err
		}
		x.Copy(t)
		x.Release(t)
		return nil
	}}
	for _, w := range s.Workloads() {
		if w.name != "log-around" {
			continue
		}
		var r Row
		if err := w.explore(some(0), &r); err != nil || !strings.Contains(r.Result, "an fsync has committed the transaction") {
			t.Errorf("have %q %v", r.Result, err)
		}
	}
	if ok, text, err := s.costs(); ok || err != nil || !strings.HasPrefix(text, "63 of 64 fsyncs") {
		t.Errorf("have %v %q %v", ok, text, err)
	}
}

// TestNowaitJudged: what an extent does not give back, and what is told of it, is compared with
// what was short.
func TestNowaitJudged(t *testing.T) {
	for _, tt := range []struct {
		work   shortWork
		extent func(t *kit.Task, x *kit.NowaitExtent) error
		want   string
	}{
		{shortWork{place: kit.EAGAIN, want: kit.EAGAIN}, func(t *kit.Task, x *kit.NowaitExtent) error { x.TryRange(t); x.UnlockRange(t); return kit.EAGAIN }, ""},
		{shortWork{place: kit.EAGAIN, want: kit.EAGAIN}, func(t *kit.Task, x *kit.NowaitExtent) error { x.TryRange(t); return kit.EAGAIN }, "the range is still locked after"},
		{shortWork{place: kit.EAGAIN, want: kit.EAGAIN}, func(t *kit.Task, x *kit.NowaitExtent) error { x.Reserve(t, kit.NoFlush); return kit.EAGAIN }, "1 reservations are left after"},
		{shortWork{reserve: kit.EDQUOT, want: kit.EAGAIN}, func(t *kit.Task, x *kit.NowaitExtent) error { return x.Reserve(t, kit.NoFlush) }, "the caller is told " + kit.EDQUOT.Error() + ", want " + kit.EAGAIN.Error()},
	} {
		r := Row{}
		w := workload{name: "judged", program: tt.work.program(tt.extent)}
		err := w.explore(some(0), &r)
		if err != nil || r.Violated != (tt.want != "") || tt.want != "" && (r.Kind != undone || !strings.Contains(r.Result, tt.want)) {
			t.Errorf("have %s %q %v, want %q", r.Kind, r.Result, err, tt.want)
		}
	}
}

// TestSayNoInstructor: what a student is told names nothing that only whoever teaches has: texts,
// hints, the words after a prediction.
func TestSayNoInstructor(t *testing.T) {
	r := root(t)
	for _, l := range Labs {
		readme, err := l.Text(r)
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]string{"README.md": readme}
		for level := range MaxHint {
			if told[fmt.Sprint("hint ", level+1)], err = l.Hint(r, level+1); err != nil {
				t.Fatal(err)
			}
		}
		qs, err := l.Questions(r)
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range qs {
			told[fmt.Sprint("question ", i+1)] = strings.Join(append(q.Choices, q.Ask, q.Why), "\n")
		}
		for what, text := range told {
			if strings.Contains(text, "instructor") || strings.Contains(text, "_mutants") {
				t.Errorf("lab %d, %s: %s", l.N, what, text)
			}
		}
	}
}
