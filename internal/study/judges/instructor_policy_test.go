package judges

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"btrlab/internal/iopath"
	locks "btrlab/internal/measure/profile"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
	capstone "btrlab/labs/12-capstone"
	"btrlab/labs/kit"
)

// preset is a preset of seed 002 by the steps of the kit.
type preset struct {
	unlock, drainFirst, prewait, ranges bool
	pages                               int
	balance                             int // before a batch -1, after it 0, after the locks 1
}

// byKit are the presets as a student can write them. Modern is here without what it does to direct
// and NOWAIT requests, and it waits for stable pages of files without checksums.
var byKit = map[string]preset{
	"locked":         {},
	"unlocked":       {unlock: true},
	"unlocked-drain": {unlock: true, drainFirst: true},
	"prewait":        {prewait: true, balance: 1},
	"range-lock":     {ranges: true},
	"modern":         {pages: kit.BatchOne, balance: -1},
}

func (p preset) Write(t *kit.Task, w *kit.WriteOp) {
	r := w.Range(t)
	inside := r.End <= w.Size(t)
	if p.prewait && inside {
		w.Prewait(t)
	}
	if p.ranges && inside {
		w.LockRange(t, r.Start, r.End)
		if r.End <= w.Size(t) {
			p.copies(t, w)
			w.UnlockRange(t)
			return
		}
		w.UnlockRange(t)
	}
	w.Alone(t)
	if r = w.Range(t); p.ranges {
		w.LockRange(t, min(r.Start, w.Size(t)), r.End)
	}
	if p.unlock {
		inside = r.End <= w.Size(t)
		p.drops(t, w, inside)
	} else {
		p.copies(t, w)
	}
	if p.ranges {
		w.UnlockRange(t)
	}
	w.Unlock(t)
	if p.balance > 0 {
		w.Balance(t)
	}
}

// drops is the copy loop of the patch of seed 002.
func (p preset) drops(t *kit.Task, w *kit.WriteOp, inside bool) {
	more := w.Begin(t)
	w.Count(t)
	if inside {
		w.Unlock(t)
	}
	for more {
		more = w.Batch(t, kit.BatchMax)
		w.Balance(t)
	}
	w.Uncount(t)
	if inside {
		w.Alone(t)
	}
}

func (p preset) copies(t *kit.Task, w *kit.WriteOp) {
	pages := p.pages
	if pages == 0 {
		pages = kit.BatchMax
	}
	for more := w.Begin(t); more; {
		if p.balance < 0 {
			w.Balance(t)
		}
		if more = w.Batch(t, pages); p.balance == 0 {
			w.Balance(t)
		}
	}
}

func (preset) Read(t *kit.Task, r *kit.ReadOp) { r.Copy(t) }

func (p preset) Truncate(t *kit.Task, x *kit.TruncateOp) {
	x.Alone(t)
	if p.ranges {
		x.LockRange(t, min(x.NewSize(t), x.Size(t)), kit.EndOfFiles)
	}
	if p.drainFirst {
		x.Drain(t)
	}
	if x.SetSize(t) {
		if !p.drainFirst {
			x.Drain(t)
		}
		x.DropExtents(t)
	}
	if p.ranges {
		x.UnlockRange(t)
	}
	x.Unlock(t)
}

func (p preset) Fallocate(t *kit.Task, x *kit.FallocateOp) {
	x.Alone(t)
	if p.ranges {
		x.LockRange(t, min(x.Range(t).Start, x.Size(t)), kit.EndOfFiles)
	}
	x.Change(t)
	if p.ranges {
		x.UnlockRange(t)
	}
	x.Unlock(t)
}

func (preset) Fsync(t *kit.Task, x *kit.FsyncOp) {
	x.Start(t)
	x.Alone(t)
	x.Flush(t)
	x.Unlock(t)
	x.Commit(t)
}

func (p preset) student() Policy { return Policy{New: func() kit.Policy { return p }} }

// broken are the scenarios that the matrix of package scenario finds broken under the unlocked
// presets.
var broken = map[string][]string{
	"unlocked": {"truncate-race", "truncate-into", "two-writers-truncate", "truncate-rewrite", "two-writers-same", "two-writers-nested",
		"two-writers-overlap", "two-writers-extend", "long-write-punch", "long-write-truncate", "three-truncate", "three-inside", "three-overlap"},
	"unlocked-drain": {"two-writers-same", "two-writers-nested", "two-writers-overlap", "two-writers-extend", "long-write-punch", "three-overlap"},
}

// TestPresetsByKit: the steps of the kit are enough for every preset, and what is written with them
// is the preset: the same scenarios are broken, and the same jobs take about the same virtual time.
// Not to the nanosecond, because a policy that asks for i_size once more is a task that can be
// interrupted there. Modern skips a wait that the kit always has, so its times are not compared.
func TestPresetsByKit(t *testing.T) {
	need.Long(t)
	for name, p := range byKit {
		s := p.student()
		n := 20
		if testing.Short() {
			n = 4
		}
		for _, w := range s.Workloads() {
			var r grade.Row
			if w.scenario == nil {
				continue
			}
			if err := w.explore(some(n), &r); err != nil {
				t.Fatal(err)
			}
			of, _, _ := strings.Cut(strings.TrimPrefix(w.name, "far-"), "@")
			if want := !slices.Contains(broken[name], of); r.Pass != want && (want || !testing.Short()) {
				t.Errorf("%s, %s: kept is %v want %v: %s", name, w.name, r.Pass, want, r.Result)
			}
		}
		for i := range jobs {
			if j := &jobs[i]; name != "modern" {
				want, err := j.run(name+"!EXTENT_LOCK_BACK_OFF"+commits, iopath.Lab{})
				if err != nil {
					t.Fatal(err)
				}
				have, err := j.run(labBase, s.lab(nil))
				if wrong := err != nil && strings.Contains(err.Error(), "violated (oracle)"); wrong && len(broken[name]) > 0 {
					err = nil // what was measured is judged as well
				}
				if x := float64(have) / float64(want); err != nil || x < 0.9 || x > 1.1 {
					t.Errorf("%s, %s: have %d ns %v want %d ns within 10 per cent", name, j.name, have, err, want)
				}
			}
		}
	}
}

// TestFamilies: every scenario of the matrix that goes by the steps of the kit is in a row, once.
func TestFamilies(t *testing.T) {
	in := map[string]int{}
	for _, f := range families {
		for _, name := range f.scenarios {
			in[name]++
		}
	}
	for _, s := range scenario.All() {
		steps := slices.ContainsFunc(s.Tasks, func(k scenario.Task) bool { return slices.ContainsFunc(k.Ops, byStep) })
		want := 0
		if steps && len(s.Policies) == 0 && !slices.Contains(unkept, s.Name) && !slices.Contains(beside, s.Name) {
			want = 1
		}
		if in[s.Name] != want {
			t.Errorf("%s is in %d rows, want %d", s.Name, in[s.Name], want)
		}
	}
	if n := Points(starters[12]) + starters[12].About().Essay.Points; n != 100 {
		t.Errorf("lab 12 gives %g points with the teacher's, want 100", n)
	}
}

// unkept are scenarios that no policy keeps by their rules: a direct write of several extents, and
// one from a mapping of its own range.
var unkept = []string{"direct-extents-whole", "direct-mapped"}

// beside are scenarios of operations that the kit has no steps for: they are no rows of the lab.
var beside = []string{"direct-append", "direct-truncate-read", "reflink-source", "reflink-write", "reflink-truncate", "reflink-snapshot",
	"unlink-write", "rename-over-write", "setxattr-snapshot", "quota-limit"}

// byStep reports whether an operation goes by the steps of the kit. A direct write and a read
// beside nothing else do not.
func byStep(o scenario.Op) bool {
	switch o.Kind {
	case scenario.OpWrite, scenario.OpRead:
		return !o.Direct && !o.Nowait
	case scenario.OpTruncate, scenario.OpPunch, scenario.OpFallocate, scenario.OpFsync:
		return true
	}
	return false
}

// TestPolicyStarter: the starter does nothing, and the panic says in each row which step is
// missing.
func TestPolicyStarter(t *testing.T) {
	s := Policy{New: func() kit.Policy { return capstone.New() }}
	rows := Judge(s, &sandbox.Run{Schedules: 5})
	for _, r := range rows {
		if r.Pass || r.Score != 0 {
			t.Errorf("%s: %g points: %s", r.Name, r.Score, r.Result)
		}
		if len(r.Parts) > 0 && (!r.Violated || r.Kind != explore.KindPanic || !strings.Contains(r.Result, "has returned ")) {
			t.Errorf("%s: %s", r.Name, r.Result)
		}
		if len(r.Parts) == 0 && (r.Result != "not measured: a workload is violated" || len(r.Times) != len(policy.Names())) {
			t.Errorf("%s: %s, %v", r.Name, r.Result, r.Times)
		}
	}
	first := rows[0]
	again := replayed(s, first.Workload, first.Schedule)
	if len(again) != 1 || again[0].Pass || again[0].Name != first.Workload || again[0].Trace == "" {
		t.Errorf("the schedule of %s does not show it again: %+v", first.Workload, again)
	}
	if rows := Judge(s, &sandbox.Run{Schedules: 5, First: true}); len(rows) != 1 || rows[0].Pass {
		t.Errorf("have %d rows want the one that fails first", len(rows))
	}
}

// TestPolicyProfile: what was measured leaves its waits, with the student's policy for a name, and
// a profile that pprof reads.
func TestPolicyProfile(t *testing.T) {
	l := locks.NewLocks()
	s := byKit["range-lock"].student()
	s.Profile = l
	var r grade.Row
	if err := jobs[1].measure(s, true, &r); err != nil {
		t.Fatal(err)
	}
	if !r.Pass || r.Times[0].Policy != grade.Yours || len(r.Times) != len(policy.Names())+1 || len(r.Locks) == 0 || r.Locks[0].Nanos == 0 {
		t.Errorf("%+v", r)
	}
	if len(r.Holds) != 1 || r.Holds[0].Lock != "range" || r.Holds[0].Count != 8*512 || r.Holds[0].Nanos == 0 {
		t.Errorf("8 writers of 512 writes that take a range each: %+v", r.Holds)
	}
	path := filepath.Join(t.TempDir(), "lock")
	if err := s.writeProfile(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	nanos := map[string]int64{}
	for _, x := range p.Sample {
		if l := x.Label; len(l["op"]) == 1 && l["op"][0] == "writer" {
			if l["policy"][0] != grade.Yours {
				t.Fatalf("a sample of %v", l)
			}
			if leaf := x.Location[0].Line[0].Function.Name; !strings.HasPrefix(leaf, "btrlab/internal/data/") && !strings.HasPrefix(leaf, "btrlab/internal/iopath") {
				t.Errorf("a wait for %v in %s, want where the write path waits", l["lock"], leaf)
			}
			nanos[l["lock"][0]] += x.Value[1]
		}
	}
	for _, w := range r.Locks {
		if nanos[w.Lock] < w.Nanos || strings.HasSuffix(w.Lock, "_idle") {
			t.Errorf("%s: the profile has %d ns, the row %d", w.Lock, nanos[w.Lock], w.Nanos)
		}
	}
	if err := jobs[1].measure(s, false, &r); err != nil || r.Result != "not measured: a workload is violated" {
		t.Errorf("%s %v", r.Result, err)
	}
}

// TestTextRow: the sections of the student's text must be there and say something; comments are
// nothing.
func TestTextRow(t *testing.T) {
	dir, essay := t.TempDir(), lab(t, 12).About().Essay
	path := filepath.Join(dir, "REPORT.md")
	if r := essay.Row(dir); r.Pass || r.Result != "no REPORT.md in the folder" {
		t.Errorf("%+v", r)
	}
	full := ""
	for _, name := range essay.Sections {
		full += "## " + name + "\n\n" + strings.Repeat("Words, ", 40) + "\n\n"
	}
	for _, tt := range []struct {
		text, want string
	}{
		{full, "5 sections; up to 10 points more are the teacher's"},
		{strings.Replace(full, "## Idea", "## Ideas", 1), `want at least 200 characters in each section: "Idea" has 0 characters`},
		{strings.Replace(strings.Replace(full, "Words, ", "<!-- ", 1), "Words, \n", "-->\n", 1), `want at least 200 characters in each section: "Idea" has 0 characters`},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := essay.Row(dir); !strings.HasPrefix(r.Result, tt.want) {
			t.Errorf("have %q want %q", r.Result, tt.want)
		}
	}
	starter := essay.Row(lab(t, 12).About().Dir(root(t)))
	if starter.Pass || strings.Count(starter.Result, "has 0 characters") != len(essay.Sections) {
		t.Errorf("the starter's text: %s", starter.Result)
	}
}
