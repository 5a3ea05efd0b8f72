package judges

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
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
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
	b.WriteString("# Found by go test ./internal/study/judges -run Rewrite -rewrite.\n")
	for _, k := range lab1 {
		answer := map[string]string{"keep-the-truncate": "unlocked-drain", "keep-the-writes": "range-lock"}[k.name]
		if !k.keeps {
			answer = witness(t, &k)
		}
		fmt.Fprintf(&b, "%s = %s\n", k.name, answer)
	}
	if err := os.WriteFile(filepath.Join(lab(t, 1).About().Dir(root(t)), "instructor", "_solution", "schedules.txt"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// witness is a schedule that task k accepts: the first one that names one step, else the first that
// names two.
func witness(t *testing.T, k *task1) string {
	try := func(schedule string) bool {
		var r grade.Row
		if err := k.judge(t.Context(), schedule, &r, nil); err != nil {
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
	need.Long(t)
	r := root(t)
	printed := map[string]string{}
	schedule := regexp.MustCompile(`\b\d+:\d(,\d+:\d)*\b`)
	for _, glob := range []string{"README.md", "Makefile", "labs/README.md", "labs/*/README.md", "labs/*/hints.md", "labs/*/*.txt", "labs/*/*.go", "labs/reference/*.md", "notebooks/*.ipynb", "internal/cli/*/*.go"} {
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
				var row grade.Row
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
			var row grade.Row
			if err := k.judge(t.Context(), s, &row, nil); err != nil || row.Pass {
				t.Errorf("%s: %q of %s is an answer: %s %v", k.name, s, where, row.Result, err)
			}
		}
	}
}

// TestOrders runs all 120 orders of the five steps: the list of those that the workloads accept is
// what instructor/NOTES.md says.
func TestOrders(t *testing.T) {
	need.Long(t)
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
			var r grade.Row
			w := all[slices.IndexFunc(all, func(w Workload) bool { return w.name == name })]
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
	for _, r := range Judge(Sectors{Write: func(t *kit.Task, w *kit.SectorWrite) {
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
	}}, &sandbox.Run{}) {
		if !r.Pass && r.Result != NoAnswer {
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
		ok, text, err := Nowait{Extent: extent}.costs()
		if err != nil || text != want || ok != strings.HasPrefix(want, "0") {
			t.Errorf("have %v %q %v, want %q", ok, text, err, want)
		}
	}
}

// TestLockingJudged: what the rows of lab 3 ask apart from each other: a right order that keeps the
// lock has no row of speed, and CanUnlock is judged whatever Write does.
func TestLockingJudged(t *testing.T) {
	need.Long(t)
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
	// Inside EOF, where the timed writes are, this is right and fast.
	always := func(t *kit.Task, w *kit.LockedWrite) {
		w.Lock(t)
		w.Place(t)
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
		{"never locked for a copy", Locking{CanUnlock: inside, Write: always}, " inside-truncate one-byte-beyond appends gap fast-path virtual-time"},
		{"right", Locking{CanUnlock: inside, Write: right}, ""},
		{"locked", Locking{CanUnlock: inside, Write: locked}, " fast-path virtual-time"},
		{"undecided", Locking{CanUnlock: func(pos, n, isize uint64) bool { return false }, Write: right}, " decide"},
		{"starter, decided", Locking{CanUnlock: inside, Write: unlocked.Write}, " inside-truncate one-byte-beyond appends gap append-truncate fast-path virtual-time"},
	} {
		failed := ""
		for _, r := range Judge(tt.s, &sandbox.Run{}) {
			if r.Result == NoAnswer {
				continue
			}
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

// TestOvertake: what lab 8 says of the order. A write that is done at once may end before an older
// one that a worker has.
func TestOvertake(t *testing.T) {
	s := Ring{SubmitPath: kit.SubmitPath{Work: ring.Work, Submit: func(t *kit.Task, q *kit.Request) {
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
		r := grade.Row{}
		w := Workload{name: "overtake", program: x.program(s.path())}
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
		var r grade.Row
		l := Ring{SubmitPath: kit.SubmitPath{Submit: tt.submit, Work: ring.Work}}.Workloads()
		w := l[slices.IndexFunc(l, func(w Workload) bool { return w.name == "ring-nowait-part" })]
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
		r := grade.Row{}
		w := Workload{name: "judged", program: ringWork{writes: []ringWrite{{n: 4, res: 4}}}.program(Ring{SubmitPath: kit.SubmitPath{Submit: tt.submit}}.path())}
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
		var r grade.Row
		w := Workload{name: "full", program: tt.leaf.program(tt.put)}
		if err := w.explore(some(0), &r); err != nil || r.Violated != (tt.want != "") || !strings.Contains(r.Result, tt.want) {
			t.Errorf("have %q %v want %q", r.Result, err, tt.want)
		}
	}
}

// TestLogJudged: an order that leaves what the log has of a range keeps what fsync promises,
// because the log is refused and the fsync commits. The row says so, and its fsyncs are not counted
// as logged.
func TestLogJudged(t *testing.T) {
	s := LogItem{Put: func(t *kit.Task, x *kit.LogItem) error {
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
		var r grade.Row
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
		r := grade.Row{}
		w := Workload{name: "judged", program: tt.work.program(tt.extent)}
		err := w.explore(some(0), &r)
		if err != nil || r.Violated != (tt.want != "") || tt.want != "" && (r.Kind != undone || !strings.Contains(r.Result, tt.want)) {
			t.Errorf("have %s %q %v, want %q", r.Kind, r.Result, err, tt.want)
		}
	}
}
