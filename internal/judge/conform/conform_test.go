package conform

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/sched"
)

var (
	rewrite = flag.Bool("rewrite", false, "rewrite testdata with what the code says")
	accept  = flag.Bool("accept", false, "with -rewrite: let the proposed names of other kernels than "+KnownRelease+" hold")
)

// sequence makes steps of words: "lock-4k" is a step with an own name, "space:+4k" and "bits:..."
// are of groups whose values can differ.
func sequence(words string) (list []Event) {
	for _, w := range strings.Fields(words) {
		e := Event{Group: Locks, Name: w}
		if name, about, ok := strings.Cut(w, ":"); ok {
			e = Event{Group: Space, Name: name, About: "DATA " + about}
		}
		list = append(list, e)
	}
	return list
}

// Each mark, by the smallest sequences that show it.
func TestAlign(t *testing.T) {
	for _, c := range []struct{ name, kernel, engine, want string }{
		{"the same", "a b c", "a b c", "a=a b=b c=c"},
		{"missing", "a b c", "a c", "a=a b- c=c"},
		{"extra", "a c", "a b c", "a=a -b c=c"},
		{"both", "a x c", "a y c", "a=a x- -y c=c"},
		{"order", "a b c", "b a c", "a<> b=b >a c=c"},
		{"count", "a b a c", "a b c", "a=a b=b a# c=c"},
		{"value", "a s:+4k c", "a s:+8k c", "a=a s:+4k~s:+8k c=c"},
		{"two values keep their order", "s:+1k s:+2k", "s:+3k s:+4k", "s:+1k~s:+3k s:+2k~s:+4k"},
		{"nothing here", "a", "", "a-"},
		{"nothing there", "", "a", "-a"},
		{"nothing at all", "", "", ""},
	} {
		var got []string
		for _, r := range Align(sequence(c.kernel), sequence(c.engine)) {
			word := func(e *Event) string {
				if e == nil {
					return ""
				}
				return strings.Replace(e.String(), " DATA ", ":", 1)
			}
			k, e := word(r.Kernel), word(r.Engine)
			sign := [...]string{"=", "-", "-", "<>", "#", "~"}[r.Mark]
			if r.Mark == Order && r.Kernel == nil {
				sign = ">"
			}
			got = append(got, k+sign+e)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s", c.name, s, c.want)
		}
	}
}

// Whatever the sequences are, an alignment has every step of each side once, in its order.
func TestAlignKeepsSteps(t *testing.T) {
	words := []string{"a", "b", "c", "s:+1k", "s:+2k"}
	for n := range 3000 {
		var side [2][]string
		x := n*2654435761 + 1
		for i := range 12 {
			x = x*1103515245 + 12345
			side[i&1] = append(side[i&1], words[(x>>8&0xffff)%len(words)])
		}
		a, b := sequence(strings.Join(side[0], " ")), sequence(strings.Join(side[1], " "))
		var got [2][]Event
		for _, r := range Align(a, b) {
			if r.Kernel != nil {
				got[0] = append(got[0], *r.Kernel)
			}
			if r.Engine != nil {
				got[1] = append(got[1], *r.Engine)
			}
			if same := r.Kernel != nil && r.Engine != nil && r.Kernel.String() == r.Engine.String(); same != (r.Mark == Same) {
				t.Fatalf("%v | %v: row %+v", side[0], side[1], r)
			}
		}
		if !slices.Equal(got[0], a) || !slices.Equal(got[1], b) {
			t.Fatalf("%v | %v: rows have %v | %v", side[0], side[1], got[0], got[1])
		}
	}
}

// What an event keeps of what was reported, and what it does not.
func TestAbstract(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		e    sched.TraceEvent
		want string // "" is left out
	}{
		{sched.TraceEvent{Name: "btrfs_set_extent_bit", Start: 4096, Len: 4096, What: "LOCKED"}, "set_extent_bit LOCKED [4k,8k)"},
		{sched.TraceEvent{Name: "btrfs_clear_extent_bit", Start: 0, Len: 1 << 63, What: "LOCKED|DEFRAG|DELALLOC_NEW"}, "clear_extent_bit LOCKED [0,end)"},
		{sched.TraceEvent{Name: "btrfs_clear_extent_bit", Len: 4096, What: "DELALLOC|CLEAR_META_RESV|NORESERVE|CLEAR_DATA_RESV"},
			"clear_extent_bit DELALLOC|NORESERVE|DO_ACCOUNTING [0,4k)"},
		{sched.TraceEvent{Name: "btrfs_clear_extent_bit", Start: 4096, Len: ^uint64(0), What: "DELALLOC"}, "clear_extent_bit DELALLOC [4k,end)"},
		{sched.TraceEvent{Name: "btrfs_clear_extent_bit", Start: 0, Len: 4096, What: "QGROUP_RESERVED"}, ""},
		{sched.TraceEvent{Name: "btrfs_cow_block", Root: 5, Val: 1}, "cow_block fs level 1"},
		{sched.TraceEvent{Name: "btrfs_tree_lock"}, "tree_lock new"},
		{sched.TraceEvent{Name: "btrfs_tree_lock", Root: 1<<64 - 6}, "tree_lock log"},
		{sched.TraceEvent{Name: "btrfs_tree_lock", Root: 256}, "tree_lock subvolume"},
		{sched.TraceEvent{Name: "update_bytes_may_use", What: "DATA", Val: -mib}, "update_bytes_may_use DATA -1024k"},
		{sched.TraceEvent{Name: "btrfs_inode_mod_outstanding_extents", Val: 1}, "inode_mod_outstanding_extents +1"},
		{sched.TraceEvent{Name: "btrfs_finish_ordered_extent", Len: 512}, "finish_ordered_extent 512"},
		{sched.TraceEvent{Name: "btrfs_ordered_extent_add", Len: 4096, What: "nocow"}, "ordered_extent_add NOCOW [0,4k)"},
		{sched.TraceEvent{Name: "btrfs_work_queued"}, ""},
	} {
		e, ok := abstract(Caller, c.e)
		if got := e.String(); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%+v: %q, %v, want %q", c.e, got, ok, c.want)
		}
	}
}

// The tables are whole: names are there once, and each difference and each thing that is left out
// has a reason.
func TestTables(t *testing.T) {
	seen := map[string]bool{}
	once := func(kind, name string) {
		if seen[kind+name] {
			t.Errorf("%s %s is there twice", kind, name)
		}
		seen[kind+name] = true
	}
	for _, tp := range tracepoints {
		once("tracepoint", tp.name)
	}
	for i := range Ops {
		op := &Ops[i]
		once("operation", op.Name)
		if Find(op.Name) != op || op.About == "" || len(steps(op.Do)) == 0 {
			t.Errorf("operation %q: not found, or says nothing, or does nothing", op.Name)
		}
	}
	if len(Ops) < 30 {
		t.Errorf("%d operations, want 30 at least", len(Ops))
	}
	for _, k := range Differences() {
		once("difference", k.Name)
		if !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(k.Name) || !strings.HasSuffix(k.Why, ".") {
			t.Errorf("difference %q: %q", k.Name, k.Why)
		}
		if k.Ops != nil && !slices.ContainsFunc(Ops, func(op Op) bool { return k.Ops.MatchString(op.Name) }) {
			t.Errorf("difference %s is of no operation: %v", k.Name, k.Ops)
		}
	}
	for _, l := range LeftOut() {
		once("left out ", l.Name)
		if l.Why == "" {
			t.Errorf("%s is left out without a reason", l.Name)
		}
	}
}

// The engine's steps are the same in every run; a difference of the testdata is a change of what
// the engine does, or tells.
func TestEngineSteps(t *testing.T) {
	for _, name := range []string{"write-inside", "writeback", "fsync-fast", "truncate-into", "dwrite-nocow", "create"} {
		op := Find(name)
		var first []Event
		for run := range 2 {
			img, err := makeImage(op.size())
			if err != nil {
				t.Fatal(err)
			}
			events, err := runEngine(img, op, Policy)
			if err != nil {
				t.Fatal(err)
			}
			if run == 0 {
				first = events
			} else if !slices.Equal(events, first) {
				t.Errorf("%s: another run has other steps", name)
			}
		}
		var b strings.Builder
		for _, e := range first {
			fmt.Fprintf(&b, "%-9s %s\n", e.Lane, e)
		}
		golden(t, name+".txt", b.String())
	}
}

// The agreement with the recorded kernel: each difference is expected at its place, no expected one
// is gone, and the figures of each operation are these. Fewer same steps than there were is a step
// away from Linux.
func TestRecorded(t *testing.T) {
	k := OpenRecorded()
	if !strings.HasPrefix(k.Release, KnownRelease) {
		t.Errorf("recorded Linux %q, want %s", k.Release, KnownRelease)
	}
	r := Report{Kernel: k.Release, Policy: Policy}
	for i := range Ops {
		x, err := k.Compare(&Ops[i], Policy)
		if err != nil {
			t.Fatal(err)
		}
		r.Results = append(r.Results, x)
		complain(t, k.Version(), x)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "agreement.txt", b.String())
}

// complain reports the rows that are not expected.
func complain(t *testing.T, version string, x *Result) {
	t.Helper()
	for l := range lanes {
		for j := range x.Rows[l] {
			row := &x.Rows[l][j]
			if row.Mark == Same {
				continue
			}
			if row.Known == "" {
				t.Errorf("%s, %s: %v: kernel %q, engine %q is not expected (-rewrite proposes a name)", x.Op.Name, l, row.Mark, text(row.Kernel), text(row.Engine))
			} else if d := byDifference(row.Known); d == nil || !d.covers(version, x.Op, row) {
				t.Errorf("%s, %s: %v: kernel %q, engine %q cannot be %s", x.Op.Name, l, row.Mark, text(row.Kernel), text(row.Engine), row.Known)
			}
		}
		for j := range x.Gone[l] {
			row := &x.Gone[l][j]
			t.Errorf("%s, %s: expected %s is gone: kernel %q, engine %q", x.Op.Name, l, row.Known, text(row.Kernel), text(row.Engine))
		}
	}
}

// The names of the recorded runs say their versions, so that they are listed without being read.
func TestRecordedVersions(t *testing.T) {
	var want []string
	for _, k := range recordings() {
		if v := k.Version(); !slices.Contains(want, v) {
			want = append(want, v)
		}
	}
	if have := RecordedVersions(); !slices.Equal(have, want) {
		t.Errorf("listed %q, recorded %q", have, want)
	}
}

// What is expected of the other sequences of the recorded kernels, and of the one that does not
// show the steps of functions, holds as well; and each name is somewhere.
func TestSequences(t *testing.T) {
	used := map[string]bool{}
	for _, k := range recordings() {
		if k.expected == nil {
			t.Errorf("no differences are expected of %s (-rewrite proposes them)", k.name)
		}
		for p := range k.expected {
			if _, ok := k.steps[p]; !ok {
				t.Errorf("%s, %s: differences are expected of a sequence that was not recorded", p, p.lane)
			}
		}
		for i := range Ops {
			op := &Ops[i]
			ours := k.shown(engineEvents(t, op, DefaultPolicy(k.Version())))
			for l := range lanes {
				for _, theirs := range k.sequences(op.Name, l) {
					x := &Result{Op: op}
					if err := x.compareLane(k, l, theirs, inLane(ours, l)); err != nil {
						t.Fatal(err)
					}
					complain(t, k.Version(), x)
					for j := range x.Rows[l] {
						used[x.Rows[l][j].Known] = true
					}
				}
			}
		}
	}
	for _, d := range Differences() {
		if !used[d.Name] {
			t.Errorf("difference %s is at no row any more: take it out", d.Name)
		}
	}
}

// engineEvents are the engine's steps of an operation.
func engineEvents(t *testing.T, op *Op, policy string) []Event {
	t.Helper()
	img, err := makeImage(op.size())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := runEngine(img, op, policy)
	if err != nil {
		t.Fatalf("%s: engine: %v", op.Name, err)
	}
	return ours
}

// TestMain writes the expected differences again with -rewrite, before the tests that compare with
// them.
func TestMain(m *testing.M) {
	flag.Parse()
	if *rewrite {
		for _, k := range recordings() {
			if err := k.rewriteExpected(filepath.Join("expected", k.name+".txt")); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// rewriteExpected writes the differences that there are. A row that was expected keeps its name;
// another one has a proposal with a question mark, which counts as open until somebody has taken it
// away.
func (k *Recorded) rewriteExpected(path string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# How the engine's steps differ from those of Linux %s: expected.go has the grammar.\n", k.Release)
	for i := range Ops {
		op := &Ops[i]
		img, err := makeImage(op.size())
		if err != nil {
			return err
		}
		ours, err := runEngine(img, op, DefaultPolicy(k.Version()))
		if err != nil {
			return fmt.Errorf("%s: engine: %w", op.Name, err)
		}
		ours = k.shown(ours)
		fmt.Fprintf(&b, "== %s\n", op.Name)
		for pass := range 2 { // the first sequences of both lanes, then the others
			for l := range lanes {
				for n, theirs := range k.sequences(op.Name, l) {
					if (n == 0) != (pass == 0) {
						continue
					}
					p := place{op.Name, l, n + 1}
					if n > 0 {
						fmt.Fprintf(&b, "== %s\n", p)
					}
					for _, d := range differences(k.withNames(op, Align(theirs, inLane(ours, l)), theirs, p)) {
						fmt.Fprintf(&b, "%.1s %s\n", l, d.String())
					}
				}
			}
		}
	}
	x, err := parseExpected(b.String())
	if err != nil {
		return err
	}
	k.expected = x
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// withNames gives the rows the names of old, and proposals.
func (k *Recorded) withNames(op *Op, rows []Row, theirs []Event, p place) []Row {
	old := k.expected
	want, err := old.rows(p, theirs)
	if err != nil || old[p] == nil { // recorded anew: by the differences alone
		if p.n > 1 && old[p] == nil {
			p.n = 1
		}
		want = nil
		for _, d := range old[p] {
			want = append(want, expectedRow{d.kernel, d.engine, d.known()})
		}
	}
	judge(rows, want)
	for i := range rows {
		if r := &rows[i]; r.Mark != Same && r.Known == "" {
			r.Known = "?" + proposal(k.Version(), op, r)
			if *accept && r.Known != "?" && k.Version() != KnownRelease {
				r.Known = r.Known[1:]
			}
		}
	}
	return rows
}

// A recorded run says what the runs said, the sequence that was seen most first.
func TestRecord(t *testing.T) {
	k := OpenRecorded()
	var record Recorder
	want := map[string][]Event{}
	for _, name := range []string{"write-inside", "writeback"} {
		x, err := k.Compare(Find(name), Policy)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = k.steps[place{name, Caller, 1}]
		other := &Result{Op: x.Op, Rows: x.Rows}
		first := slices.IndexFunc(x.Rows[Caller], func(r Row) bool { return r.Kernel != nil })
		other.Rows[Caller] = x.Rows[Caller][first+1:]
		for _, seen := range []*Result{other, x, x} {
			record.Add(seen)
		}
	}
	var b strings.Builder
	if err := record.Write(&b, k.Release+"-custom", true, []string{"cow_block"}); err != nil {
		t.Fatal(err)
	}
	again, err := ReadRecorded(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if again.Release != k.Release || !again.Functions || !slices.Equal(again.Missing(), []string{"cow_block"}) {
		t.Errorf("release %q, functions %v, lacks %v, want %q, true and cow_block", again.Release, again.Functions, again.Missing(), k.Release)
	}
	for name, steps := range want {
		got := again.sequences(name, Caller)
		if len(got) != 2 || !slices.Equal(got[0], steps) || !slices.Equal(got[1], steps[1:]) {
			t.Errorf("%s: %v, want %v and the same without its first step", name, got, steps)
		}
		if got, want := again.sequences(name, Elsewhere), k.sequences(name, Elsewhere)[:1]; len(got) != 1 || !slices.Equal(got[0], want[0]) {
			t.Errorf("%s elsewhere: %v, want %v", name, got, want)
		}
	}
}

// A recording that is read and written is the same text, and one that takes an operation over has
// that one anew and the others as they were; of another kernel it takes nothing.
func TestPut(t *testing.T) {
	text := func(r *Recorded) string {
		var b strings.Builder
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, k := range recordings() {
		f, err := recordedText.Open("recorded/" + k.name + ".txt.gz")
		if err != nil {
			t.Fatal(err)
		}
		in, err := uncompressed(f)
		if err != nil {
			t.Fatal(err)
		}
		was, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if text(k) != string(was) {
			t.Errorf("%s: read and written it is another text:\n%s", k.name, diff(string(was), text(k)))
		}
	}
	const head = "# Linux 6.18.15\n# functions\n# lacks cow_block\n"
	const first, second = "== write-inside\nt tree_lock fs\n== write-inside task 2\nt tree_lock log\n", "== writeback\ne tree_lock fs\n"
	const other, third = "== writeback\nt tree_unlock fs\n", "== create\nt tree_lock csum\n"
	for _, compressed := range []bool{false, true} {
		from, err := ReadRecorded(strings.NewReader(head + other + third))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := from.PutInto(strings.NewReader(head+first+second), &out, compressed); err != nil {
			t.Fatal(err)
		}
		if b := out.Bytes(); compressed != (b[0] == 0x1f) {
			t.Errorf("compressed is %v, and the file begins with %#x", compressed, b[0])
		}
		got, err := ReadRecorded(&out)
		if err != nil {
			t.Fatal(err)
		}
		if want := head + first + other + third; text(got) != want {
			t.Errorf("put together it is\n%swant\n%s", text(got), want)
		}
		for _, wrong := range []string{"# Linux 6.18.16\n# functions\n# lacks cow_block\n", "# Linux 6.18.15\n# lacks cow_block\n", "# Linux 6.18.15\n# functions\n"} {
			if err := from.PutInto(strings.NewReader(wrong+first), io.Discard, compressed); err == nil || !strings.HasPrefix(err.Error(), "bad recording to add to, have Linux 6.18.1") {
				t.Errorf("put into a recording of %q: %v", wrong, err)
			}
		}
	}
}

// What the operations reach stands in the testdata, with how many of them reach it: an operation
// that is dropped, a step that the engine tells no more and an event that no recorded operation has
// any more show there. Statement coverage of the engine is measured by running this test alone:
// labs/reference 13.9.
func TestCoverage(t *testing.T) {
	var all []*Op
	for i := range Ops {
		all = append(all, &Ops[i])
	}
	c, err := OpenRecorded().Cover(all, Policy)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range c.Events {
		if !x.Shown && x.Kernel > 0 {
			t.Errorf("the kernel does not show %s, and %d of its operations have it", x.Name, x.Kernel)
		}
	}
	var b strings.Builder
	if err := c.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "coverage.txt", b.String())
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s is another one (-rewrite writes it); now:\n%s", path, diff(string(want), got))
	}
}

// diff shows the lines that only one of two texts has.
func diff(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out []string
	for _, l := range as {
		if !slices.Contains(bs, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range bs {
		if !slices.Contains(as, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}
