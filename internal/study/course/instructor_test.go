package course

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/levels"
	"btrlab/internal/testing/need"
)

// rejects is what matches the first row that rejects a mutant, where it matters to the student.
var rejects = map[string]string{
	"06/drains-outside-only":    `^violated \(oracle\)`,
	"06/drains-after-copy":      `^violated \(oracle\)`,
	"06/first-page-only":        `^violated \(livelock\)`,
	"06/beyond-eof-never":       `^violated \(panic\): ordered: add `,
	"06/if-for-a-for":           `^violated \(data race\): .* of inode 257`,
	"06/begins-again":           `^violated \(livelock\): 5000 steps`,
	"06/waits-inside":           `with i_rwsem held for each write, want at most`,
	"06/throttled-inside":       `with i_rwsem held for each write, want at most`,
	"06/lock-around-all":        `with i_rwsem held for each write, want at most`,
	"06/spins":                  `^violated \(livelock\)`,
	"06/waits-with-pages":       `^violated \(lock order\): .*waits for ordered_extent .* while it holds page`,
	"06/copies-unlocked":        `^violated`,
	"06/keeps-lock":             `Write has returned with i_rwsem held`,
	"06/copies-write":           `^write\.go:\d+: copies \*w`,
	"04/swaps-never":            `^it can be broken: oracle$`,
	"04/swaps-named":            `^truncate-race tells, half the points; no schedule is given$`,
	"04/swaps-printed":          `^truncate-race tells, half the points; `,
	"04/swaps-of-all":           `^truncate-into keeps the swap: exhausted`,
	"04/swaps-unsolved":         `^violated \(oracle\)`,
	"04/swaps-misnamed":         `^Answers: unknown question "swap-5-6"$`,
	"11/fault-under-extent":     `^violated \(lock order\): .*acquires page .* while it holds page .*at policy\.FaultIn`,
	"11/reserve-under-pages":    `^violated \(lock order\): .*waits for space_ticket .* while it holds page .*at policy\.Reserve`,
	"11/copy-before-extent":     `^violated \(oracle\): write 1 \[512, 1K\) has returned, yet at the end`,
	"11/dirty-before-extent":    `^violated \(panic\): .*dirty pages \[0, 4096\) without delalloc.*at policy\.LockExtent`,
	"11/size-after-drop":        `^violated \(oracle\): .*at policy\.DropPages`,
	"11/delalloc-after-drop":    `^violated \(panic\): .*without delalloc.*at policy\.DropPages`,
	"11/throttle-with-pages":    `^violated \(lock order\): .*waits for balance_dirty .* while it holds page .*at policy\.BalanceDirty`,
	"11/extent-before-pages":    `^violated \(lock order\): .*acquires page .* while it holds extent .*at policy\.PreparePages`,
	"11/copy-first":             `^violated \(livelock\)`,
	"11/dirty-first":            `^violated \(panic\): .*at policy\.SetDelalloc`,
	"11/no-throttle":            `^Locked: policy\.BalanceDirty is missing`,
	"11/all-never":              `^it can be broken: oracle$`,
	"11/overwrites-presets":     `^order\.go:\d+: changes policy\.Presets`,
	"12/no-recheck":             `kit\.WriteOp\.Begin without i_rwsem for writing|^truncate-`,
	"12/drains-late":            `^truncate-race: violated \(oracle\)`,
	"12/keeps-size":             `^truncate-race: violated \(oracle\)`,
	"12/shares-all":             `^two-writers-same: violated \(oracle\)`,
	"12/counts-pages-wrong":     `^two-writers-same: violated \(oracle\)`,
	"12/punches-shared":         `^long-write-punch: violated \(oracle\)`,
	"12/range-first":            `^truncate-race: violated \(lock order\)`,
	"12/never-drains":           `^direct-read-truncate: violated \(oracle\)`,
	"12/short-range":            `^two-writers-`,
	"12/keeps-op":               `kit\.ReadOp\.Copy (after the operation|by another task)`,
	"12/copies-op":              `^policy\.go:\d+: copies \*w`,
	"12/global":                 `^policy\.go:\d+: has a variable of the package`,
	"12/plain-count":            `^policy\.go:\d+: field writers is a plain int`,
	"12/own-side":               `^policy\.go:\d+: uses kit\.PolicyRunner, want only Task`,
	"12/always-alone":           `^1\.00 times locked`,
	"02/one-writer":             `^writers with \[4 4\] latencies: Ops is 4, want 8`,
	"02/percentiles-averaged":   `^writers with \[4 4\] latencies: P50`,
	"02/mean-for-median":        `^writers with \[2\] latencies: P50`,
	"02/rates-of-latencies":     `^writers with \[1\] latencies: PerSecond`,
	"02/lower-edges":            `off by 1/103, want 1/128`,
	"02/coordinated-omission":   `^request 100 was due at 4000000 ns, began at`,
	"02/closed-loop":            `^request \d+ begins \d+ ns after it could`,
	"02/counts-warm-up":         `^400 latencies of 400 requests`,
	"02/nobody-waits":           `^10 writers: predicted .* writes a second`,
	"02/waits-for-itself":       `^6 writers: predicted .* writers that wait`,
	"02/wait-twice":             `^1 writers: predicted .* writes a second`,
	"02/stops-early":            `^7 writers, want 8`,
	"02/one-slice":              `^measure\.go:\d+: has a variable of the package`,
	"03/keeps-the-size":         `^unlock\.go:\d+: has a variable of the package`,
	"03/up-to-eof":              `^CanUnlock\(4096, 4096, 8192\) is false, want true`,
	"03/one-too-many":           `^CanUnlock\(4096, 4097, 8192\) is true, want false`,
	"03/starts-only":            `^CanUnlock\(4096, 4097, 8192\) is true, want false`,
	"03/wraps":                  `^CanUnlock\(18446744073709547520, 8192, 1099511627776\) is true`,
	"03/uncounted":              `^violated \(oracle\): truncate 2 to 4K has returned`,
	"03/counts-late":            `^violated \(oracle\): truncate 2 to 4K has returned`,
	"03/trusts-a-look":          `^violated \(oracle\): truncate 2 to 4K has returned`,
	"03/keeps-the-answer":       `^violated \(lock order\)`,
	"03/extends-shared":         `^violated \(lock order\)`,
	"03/locks-counted":          `^violated \(deadlock\)`,
	"03/no-recheck":             `^violated \(oracle\): write 1 \[4K, 8K\) has returned, yet at the end bytes`,
	"03/stale-append":           `^violated \(oracle\): write 1 \[4K, 8K\) has returned, yet at the end bytes`,
	"03/always-locks":           `^0 of 40 writes inside EOF copied without i_rwsem`,
	"03/copies-shared":          `^0 of 40 writes inside EOF copied without i_rwsem`,
	"00/all-never":              `^it can be broken, with 1 preemption: x is 1 at the end, want 2`,
	"00/breaks-the-lock":        `^this is no schedule of the level: step 4: task 1 cannot run`,
	"00/one-lost":               `^this schedule breaks nothing: x is 2 or 3 at the end`,
	"00/twice":                  `^line 13: one-lock comes twice`,
	"01/printed":                `^found, but a write has returned before the truncate`,
	"01/not-the-last":           `^found, with 1 preemption; a later one alone does it, too`,
	"01/one-step-late":          `^nothing is violated by this schedule`,
	"01/locked-drains-keeps":    `^locked\+SETSIZE_DRAIN_FIRST keeps i_rwsem for the whole write`,
	"04/no-drain":               `^policy\.DIOWait is missing`,
	"04/endless":                `^setsize\.go:(9|10): Steps took 2s of processor time`,
	"05/plain-field":            `^rangelock\.go:16: field held is a plain \[\]kit\.Range`,
	"05/no-mutex-plain":         `^rangelock\.go:16: field held is a plain \[\]kit\.Range`,
	"05/no-mutex":               `^violated \(data race\)`,
	"05/stores-without":         `^violated \(data race\)`,
	"05/no-init":                `rangelock\.go:33: kit\.Mutex\.Lock before Init`,
	"05/locks-twice":            `rangelock\.go:45: kit\.Mutex\.Lock by the task that holds it`,
	"05/unlocks-twice":          `rangelock\.go:50: kit\.Mutex\.Unlock by a task that does not hold the mutex`,
	"05/spins":                  `^rangelock\.go:(28, called in rangelock\.go:)?35: lock-identical took 10s of processor time`,
	"05/busy-wait":              `^violated \(livelock\): 5000 steps`,
	"05/one-for-all":            `whoever comes second may not wait for the first`,
	"07/flushes":                `^violated \(nowait sleep\)`,
	"07/keeps-reservation":      `^violated \(undo\): 1 reservations are left after resource temporarily unavailable`,
	"07/enospc-told":            `^violated \(undo\): the caller is told`,
	"07/all-again":              `^violated \(undo\): the caller is told resource temporarily unavailable, want input/output error`,
	"07/all-punted":             `^violated \(undo\): the caller is told resource temporarily unavailable, want that it is written`,
	"07/starts-unlocked":        `kit\.NowaitExtent\.Start without the range`,
	"07/releases-twice":         `kit\.NowaitExtent\.Release after Start`,
	"07/told-unwritten":         `Extent has returned nil, and nothing was started`,
	"07/waits-for-range":        `^violated \(nowait sleep\)`,
	"07/asks-unlocked":          `kit\.NowaitExtent\.Place without the range`,
	"07/keeps-range":            `^violated \(undo\): the range is still locked after resource temporarily unavailable`,
	"07/asks-first":             `^violated \(oracle\)`,
	"07/asks-twice":             `^0 of 64 answered EAGAIN, want 0; 6\.00 tree searches of each, want at most 3`,
	"08/forgets":                `Submit has returned, and the request has neither`,
	"08/sleeps":                 `kit\.Request\.Transfer by the submitting task`,
	"08/short-is-enough":        `^violated \(completion\): request 0 was told 3 bytes, want 8 bytes`,
	"08/restarts":               `^violated \(completion\): byte 0 of file 0 was written 2 times, want 1`,
	"08/stalls":                 `^violated \(livelock\)`,
	"08/nowait-punted":          `nobody may sleep for a request with RWF_NOWAIT`,
	"08/queued-told":            `kit\.Request\.Advance after EIOCBQUEUED`,
	"08/told-twice":             `kit\.Request\.Done after Punt`,
	"08/told-unwritten":         `^violated \(completion\): request 0 was told 4 bytes, and byte 0 of them is not in the file`,
	"08/all-punted":             `times force_async`,
	"09/sums-held":              `^violated \(lock order\): .*acquires tree_log .* while it holds tree_log`,
	"09/no-sums":                `^violated \(oracle\): .*csum\.missing`,
	"09/never-drops":            `^violated \(oracle\): an fsync has committed`,
	"09/drops-first-only":       `^violated \(oracle\): an fsync has committed`,
	"09/gives-up":               `^violated \(oracle\): an fsync has committed`,
	"09/commits-again":          `^violated \(oracle\): an fsync has committed`,
	"09/drops-and-returns":      `Put has returned nil, and the item is not in the log`,
	"09/ignores-room":           `kit\.LogItem\.Copy where no empty item is`,
	"09/tells-nothing":          `Put has returned nil, and the item is not in the log`,
	"09/keeps-path":             `Put has returned with the path held`,
	"09/lets-go-first":          `kit\.LogItem\.Release of an empty item`,
	"09/unprepared":             `kit\.LogItem\.Copy before Prepare`,
	"09/fills-in-place":         `17\.4 steps with the leaf locked, want at most 9`,
	"09/prepares-held":          `2317 ns of virtual time, want 2282`,
	"10/never-alone":            `^violated \(oracle\)`,
	"10/no-drain":               `^violated \(oracle\)`,
	"10/marks-unlocked":         `^violated`,
	"10/waits-for-another":      `^violated \(livelock\)`,
	"10/no-second-look":         `Submit of a write that ends beyond EOF`,
	"10/looks-before":           `Wait, and nothing is in flight`,
	"10/forgets-cache":          `neither Submit nor Cache`,
	"10/upgrades":               `Alone by a write that has i_rwsem`,
	"10/no-wait":                `returned before the end of its write`,
	"10/keeps-lock":             `returned with i_rwsem held`,
	"10/drains-shared":          `Drain with i_rwsem shared`,
	"10/always-alone":           `whoever comes second may not wait for the first`,
	"10/always-cache":           `go through the page cache`,
	"04/overwrites-presets":     `^setsize\.go:\d+: changes policy\.Presets`,
	"04/other-names":            `^setsize\.go:\d+: uses policy\.Presets, want only SetsizeStep`,
	"05/charges-back":           `t\.Charge undefined`,
	"05/sleeps":                 `t\.Sleep undefined`,
	"05/clears-held":            `t\.HeldLocks undefined`,
	"05/embeds-task":            `undefined`,
	"05/asks-interface":         `^rangelock\.go:\d+: makes an interface of t`,
	"05/makes-task":             `kit\.Mutex\.Lock without a task`,
	"05/own-explorer":           `uses kit\.Explore, want only Task`,
	"05/ends-early":             `^violated \(panic\)|rangelock\.go:\d+: done`,
	"07/zeroes-extent":          `^extent\.go:\d+: copies \*x`,
	"08/puts-back":              `^ring\.go:\d+: copies \*q`,
	"08/runs-itself":            `uses kit\.SubmitPath, want only Task`,
	"10/copies-write":           `^sectors\.go:\d+: copies \*w`,
	"03/big-uncounted":          `^violated \(lock order\): .*relies on i_rwsem`,
	"05/big-unlocked":           `^violated \(exclusion\): task 1 got`,
	"05/gives-up":               `^violated \(exclusion\): writer \d got`,
	"12/big-unlocked":           `^far-truncate-race: violated \(`,
	"14/copies-late":            `^violated \(data race\): task 0 writer writes page 0`,
	"14/sums-pages":             `^violated \(data race\): task 0 writer writes page 0`,
	"14/sums-changing":          `^violated \(data race\): task 0 writer writes page 0`,
	"14/waits-before-only":      `^violated \(data race\): task 0 writer writes page 0`,
	"14/first-page-only":        `^violated \((data race|panic|oracle)\)`,
	"14/submits-first":          `kit\.DirtyRun\.Submit before Sum`,
	"14/never-unlocks":          `Device has returned with the pages locked`,
	"14/waits-locked":           `^the slowest of 3 rewrites took 9`,
	"14/waits-before":           `^the slowest of 3 rewrites took 9`,
	"14/copies-and-waits":       `^the slowest of 3 rewrites took 9`,
	"14/predicts-all-of-it":     `stable pages: Predict says 3\d\d rewrites a second, and 4`,
	"14/predicts-less-thinking": `stable pages: Predict says 4\d\d rewrites a second, and 4`,
	"14/predicts-no-gain":       `copies: Predict says 12\d+ rewrites a second`,
	"15/no-such-item":           `^tree fs has never had an item \(257 DIR_ITEM 262\)$`,
	"15/names-another-record":   `^the item \(262 INODE_REF 257\) is there, and as it was$`,
	"15/blames-the-file":        `^tree fs is sound$`,
	"15/keeps-its-name":         `^the file does not have the name that it had$`,
	"15/believes-the-count":     `^it has another link count than 1$`,
	"15/keeps-both-links":       `^it has another link count than 2$`,
	"15/drops-the-first-name":   `^the file does not have the name that it had$`,
	"15/heals-data":             `^not 16982 bytes, but another number can be read`,
	"15/clean-at-any-price":     `^the repair leaves another number of findings$`,
	"15/believes-the-data":      `^not 16982 bytes, but another number can be read`,
	"15/loses-all-of-it":        `^not 0 bytes, but another number can be read`,
	"15/finds-the-data-again":   `^not 17992 bytes, but another number can be read`,
	"15/rebuild-loses-data":     `^not 0 bytes, but another number can be read`,
	"15/knows-the-mode":         `^its mode is another one than 0644$`,
	"15/counts-zeros":           `^not 12288 bytes, but another number can be read`,
	"15/another-file":           `^another file is hit$`,
	"15/of-another-student":     `^tree fs has never had an item \(257 DIR_ITEM 3398823561\)$`,
	"15/of-nobody":              `^no line student = ID`,
	"13/barges":                 `^violated \(fairness\): a task waits for \[0, 8\), and 3 later requests have passed it`,
	"13/late-ticket":            `^violated \(fairness\): a task waits for \[0, 8\)`,
	"13/one-too-many":           `^violated \(fairness\): a task waits for \[0, 8\)`,
	"13/short-first":            `^violated \(fairness\): a task waits for \[0, 16\)`,
	"13/near-only":              `^violated \(fairness\): a task waits for \[0, 8\), and 3 later`,
	"13/gives-up":               `^violated \(exclusion\): writer \d got`,
	"13/whole-line":             `\[16, 24\) is wanted, and neither`,
	"13/wakes-head":             `\[8, 16\) was let go`,
	"13/by-range":               `^violated \(exclusion\)`,
	"13/drops-last":             `^violated \(lost wake-up\)`,
	"13/new-ticket":             `^violated \(livelock\)`,
	"13/nobody-together":        `whoever comes second may not wait for the first`,
	"16/joins-begun":            `^violated \(durability\): connection 1 is told that its flush is done, and a power cut now loses write 1`,
	"16/waits-once":             `^violated \(durability\): .* it is cached`,
	"16/wakes-nobody":           `^violated \(orphaned wait\)`,
	"16/syncs-locked":           `kit\.Disk\.Sync by a task that holds a Mutex`,
	"16/overlaps":               `^violated \(sharing\): Sync 2 begins while another one is under way`,
	"16/sync-each":              `^violated \(sharing\): Sync 3 begins: 2 flushes came while the first was under way`,
	"16/syncs-again":            `^violated \(sharing\): Sync 2 begins, and 1 flushes have come`,
	"16/tells-again":            `was told of every Sync that has failed`,
	"16/tells-who-asked":        `^violated \(error\): a Sync has failed, and the next flush of connection 1 returns nil`,
	"16/tells-the-group":        `^violated \(error\): a Sync has failed, and the next flush of connection 1 returns nil`,
	"16/tells-one":              `^violated \(error\): a Sync has failed, and the next flush of connection 1 returns nil`,
	"16/forgets":                `^violated \(error\): a Sync has failed, and the next flush of connection 1 returns nil`,
	"16/predicts-one-sync":      ` 2 connections: Predict says 380 flushes a second`,
	"16/predicts-half":          ` 2 connections: Predict says 255 flushes a second`,
	"16/predicts-two":           ` 16 connections: Predict says 1986 flushes a second`,
	"05/nothing":                `^violated \(exclusion\): task 1 got \[0, 8\) while task 0 holds \[0, 8\)`,
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
		if l.Code != nil && os.Getenv("BTRLAB_LABS") == "" {
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
				need.Long(t)
				t.Parallel()
				o := Options{Dir: filepath.Join(instructor, "_mutants", m.Name())}
				if l.Essay != nil { // many scenarios: whoever rejects need not see the rest
					o.First, o.Schedules = true, 100
				}
				x, err := Grade(t.Context(), r, l, o)
				if err != nil {
					t.Fatal(err)
				}
				if wrong := unasked(x); wrong == nil || x.Score >= 100 {
					t.Errorf("the mutant is accepted\n%s", text(x))
				}
				if !o.First { // else the rows after the one that rejects are not judged
					score(fmt.Sprintf("%02d/%s", l.N, m.Name()), x)
				}
				t.Logf("%g of %g points", x.Score, x.Max)
				for _, row := range unasked(x) {
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

// unasked are the rows that fail, but for the questions of a second half that have no answer: a
// wrong solution of code need not answer them.
func unasked(r *Report) []grade.Row {
	half := slices.Contains([]int{3, 6, 7, 9, 10}, r.Lab)
	var wrong []grade.Row
	for _, x := range r.Rows {
		if !x.Pass && !(half && x.Result == judges.NoAnswer) {
			wrong = append(wrong, x)
		}
	}
	return wrong
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
	{"15/of-nobody", "15/names-another-record"},
	{"15/of-another-student", "15/names-another-record"},
	{"15/names-another-record", "15/heals-data"},
	{"15/heals-data", "15/clean-at-any-price"},
	{"14/copies-late", "14/waits-locked"},
	{"14/waits-locked", "14/waits-before"},
	{"16/joins-begun", "16/sync-each"},
	{"16/sync-each", "16/predicts-two"},
	{"13/barges", "13/one-too-many"},
	{"13/one-too-many", "13/wakes-head"},
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
	whole := os.Getenv(need.LongEnv) == ""
	for lab, some := range part {
		if !some && whole {
			t.Errorf("lab %s: every wrong solution has 0 points: nothing is said for what is right in them", lab)
		}
	}
	for _, p := range better {
		less, had := scores[p[0]]
		more, has := scores[p[1]]
		if (had && has || whole && part[p[0][:2]]) && less >= more {
			t.Errorf("%s has %g points and %s %g, want more", p[0], less, p[1], more)
		}
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

// TestRubrics: the written part of every lab has a rubric, in the page of all or in its notes, and
// its questions have a key.
func TestRubrics(t *testing.T) {
	r := root(t)
	page, err := os.ReadFile(filepath.Join(r, "labs", "guide", "instructor", "rubrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range Labs {
		notes, err := os.ReadFile(filepath.Join(l.Dir(r), "instructor", "NOTES.md"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), fmt.Sprintf("\n## Lab %02d\n", l.N)) && !strings.Contains(string(notes), "ubric") {
			t.Errorf("lab %d has no rubric for its written part", l.N)
		}
		if !strings.Contains(string(notes), "\n## Key to the questions\n") && !strings.Contains(string(notes), "- Question 1: ") {
			t.Errorf("lab %d has no key to its questions", l.N)
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

// TestNever: never everywhere knows nothing, and has no points, not even for the levels that
// nothing breaks.
func TestNever(t *testing.T) {
	r, l := root(t), lab(t, 0)
	x, err := Grade(t.Context(), r, l, Options{Dir: filepath.Join(l.Dir(r), "instructor", "_mutants", "all-never")})
	if err != nil || x.Score != 0 || x.Rows[2].Score != 0 || !x.Rows[2].Pass {
		t.Errorf("never: %+v, %v", x, err)
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
		if err := judges.KeepAnswer(dir, levels.All[0], answer); err != nil {
			t.Fatal(err)
		}
	}
	if err := judges.KeepAnswer(dir, levels.All[0], strings.Repeat("1:1,", 20)); err == nil {
		t.Error("an answer that grading refuses is kept")
	}
	won, err := judges.Won(dir)
	if err != nil || len(won) != 1 || !won[levels.All[0].Name] {
		t.Errorf("%v, %v", won, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, l.File))
	if want := strings.Replace(string(b), "lost-update = ?", "lost-update = 3:1", 1); err != nil || string(got) != want {
		t.Errorf("have\n%s\nwant\n%s", got, want)
	}
}
