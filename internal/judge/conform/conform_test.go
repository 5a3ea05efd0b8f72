package conform

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/sched"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata with what the code says")

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
		{sched.TraceEvent{Name: "btrfs_clear_extent_bit", Start: 0, Len: 1 << 63, What: "LOCKED|DEFRAG|IN_PLACE"}, "clear_extent_bit LOCKED [0,end)"},
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
			events, err := runEngine(img, op)
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

// The agreement with the recorded kernel: no difference without a name, and the figures of each
// operation. Fewer same steps than there were is a step away from Linux.
func TestRecorded(t *testing.T) {
	k := OpenRecorded()
	if !strings.HasPrefix(k.Release, KnownRelease) {
		t.Errorf("recorded Linux %q, want %s", k.Release, KnownRelease)
	}
	r := Report{Kernel: k.Release}
	for i := range Ops {
		x, err := k.Compare(&Ops[i])
		if err != nil {
			t.Fatal(err)
		}
		r.Results = append(r.Results, x)
		for l := range lanes {
			for j := range x.Rows[l] {
				if row := &x.Rows[l][j]; row.Mark != Same && row.Known == "" {
					t.Errorf("%s, %s: %v: kernel %q, engine %q has no name", x.Op.Name, l, row.Mark, text(row.Kernel), text(row.Engine))
				}
			}
		}
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "agreement.txt", b.String())
	for _, d := range Differences() {
		// full-fsync-waits comes with the machine's timing
		if n := r.Totals().Named[d.Name]; n == 0 && d.Name != "full-fsync-waits" {
			t.Errorf("difference %s covers no row any more: take it out", d.Name)
		}
	}
}

// A recorded run says what the run said.
func TestRecord(t *testing.T) {
	k := OpenRecorded()
	r := Report{Kernel: k.Release}
	for _, name := range []string{"write-inside", "writeback"} {
		x, err := k.Compare(Find(name))
		if err != nil {
			t.Fatal(err)
		}
		r.Results = append(r.Results, x)
	}
	var b strings.Builder
	if err := r.Record(&b); err != nil {
		t.Fatal(err)
	}
	again := parseRecorded(b.String())
	for _, x := range r.Results {
		if got, want := again.steps[x.Op.Name], k.steps[x.Op.Name]; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", x.Op.Name, got, want)
		}
	}
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
