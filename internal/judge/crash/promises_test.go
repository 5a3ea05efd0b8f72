package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// sources are the files of this package.
func sources(t *testing.T) string {
	t.Helper()
	list, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range list {
		if strings.HasSuffix(f, "_test.go") || f == "promises.go" {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

// TestPromiseTable: every loss has its row and every row its loss, the functions that judge it are
// there, and the page of the reference has the rows.
func TestPromiseTable(t *testing.T) {
	code := sources(t)
	var have, want []string
	for _, m := range regexp.MustCompile(`lossf\("(\w+)"`).FindAllStringSubmatch(code, -1) {
		have = append(have, m[1])
	}
	page, err := os.ReadFile("../../../labs/reference/06-fsync.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Promises {
		want = append(want, p.Rule)
		for _, f := range strings.Fields(p.Judge) {
			if !regexp.MustCompile(`(?m)^func (\(.*\) )?` + f + `\(`).MatchString(code) {
				t.Errorf("%s: no function %s", p.Rule, f)
			}
		}
		if row := fmt.Sprintf("| %s | %s | %s |\n", p.Rule, p.Text, p.Source); !strings.Contains(string(page), row) {
			t.Errorf("labs/reference 6.2 has no row\n%s", row)
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if have = slices.Compact(have); !slices.Equal(have, want) {
		t.Errorf("rules of losses\n%q\nrules of promises\n%q", have, want)
	}
}

var (
	top  = inodeID{5, 256}
	dirD = inodeID{5, 257}
	file = inodeID{5, 258}
	twin = inodeID{5, 259}
)

// madeTree is a version by hand: "/d/f=258" for a name.
func madeTree(t *testing.T, names string, nodes map[inodeID]*node) *tree {
	t.Helper()
	v := &tree{map[string]inodeID{"/": top}, map[entry]inodeID{}, map[inodeID]*node{top: {kind: format.S_IFDIR}}, map[inodeID]int{top: 1}}
	for _, f := range strings.Fields(names) {
		path, number, _ := strings.Cut(f, "=")
		id := inodeID{subvol: 5}
		fmt.Sscan(number, &id.ino)
		dir, base := filepath.Split(path)
		x := entry{v.names[filepath.Clean(dir)], base}
		v.names[path], v.entries[x] = id, id
		v.count[id]++
		if v.nodes[id] = nodes[id]; v.nodes[id] == nil {
			t.Fatalf("no inode for %s", path)
		}
	}
	return v
}

// TestPlantedStates: a state that breaks one promise is told by its rule, and the same state is
// right where nothing was promised. The first version is before an operation that changes what it
// changes, the last after it.
func TestPlantedStates(t *testing.T) {
	at := func(n int) time.Time { return stamp.Add(time.Duration(n) * tick) }
	base := node{kind: format.S_IFREG, size: 5000, data: bytesOf("a", 5000), attrs: attrs{mode: 0o644, atime: at(1), mtime: at(1), ctime: at(1), otime: at(1)}}
	with := func(f func(n *node)) *node {
		n := base
		f(&n)
		return &n
	}
	dir := &node{kind: format.S_IFDIR}
	const here = "/d=257 /d/f=258"
	for _, c := range []struct {
		name     string
		old, now *node  // of file 258
		names    string // now; "" is as before
		have     *node  // nil is old
		entries  string // after the crash; "" is as before
		rule     string // or one of two, by what is promised
		always   bool   // wrong without a promise as well
		data     bool   // fdatasync promises it
	}{
		{name: "old bytes", now: with(func(n *node) { n.data = bytesOf("b", 5000) }), rule: "data", data: true},
		{name: "old size", now: with(func(n *node) { n.size, n.data = 6000, bytesOf("a", 6000) }), rule: "size", data: true},
		{name: "bytes of nobody", now: with(func(n *node) { n.data = bytesOf("b", 5000) }), have: with(func(n *node) { n.data = bytesOf("c", 5000) }), rule: "data", always: true},
		{name: "old mode", now: with(func(n *node) { n.mode = 0o600 }), rule: "mode"},
		{name: "a mode of nobody", now: with(func(n *node) { n.mode = 0o600 }), have: with(func(n *node) { n.mode = 0o640 }), rule: "mode", always: true},
		{name: "old user", now: with(func(n *node) { n.uid = 5 }), rule: "owner"},
		{name: "old group", now: with(func(n *node) { n.gid = 6 }), rule: "owner"},
		{name: "a group of nobody", now: with(func(n *node) { n.uid = 5 }), have: with(func(n *node) { n.gid = 5 }), rule: "owner", always: true},
		{name: "old flags", now: with(func(n *node) { n.flags = format.InodeNoDump }), rule: "flags"},
		{name: "old atime", now: with(func(n *node) { n.atime = at(9) }), rule: "time"},
		{name: "old mtime", now: with(func(n *node) { n.mtime = at(9) }), rule: "time"},
		{name: "old ctime", now: with(func(n *node) { n.ctime = at(9) }), rule: "time"},
		{name: "old otime", now: with(func(n *node) { n.otime = at(9) }), rule: "time"},
		{name: "a time of nobody", now: with(func(n *node) { n.mtime = at(9) }), have: with(func(n *node) { n.mtime = at(9).Add(1) }), rule: "time", always: true},
		{name: "a time of later", now: with(func(n *node) { n.mtime = at(9) }), have: with(func(n *node) { n.mtime = at(11) }), rule: "time", always: true},
		{name: "a stamp between", now: with(func(n *node) { n.mtime = at(9) }), have: with(func(n *node) { n.mtime = at(5) }), rule: "time"},
		{name: "old attributes", now: with(func(n *node) { n.xattrs = "user.a" }), rule: "attribute", data: true},
		{name: "another type", now: &base, have: with(func(n *node) { n.kind = format.S_IFLNK }), rule: "inode", always: true},
		{name: "another device", now: &base, have: with(func(n *node) { n.rdev = 7 }), rule: "inode", always: true},
		{name: "old target", old: with(func(n *node) { n.kind, n.target = format.S_IFLNK, "x" }), now: with(func(n *node) { n.kind, n.target = format.S_IFLNK, "y" }), rule: "link", data: true},
		{name: "an inode of nobody", now: &base, entries: here + " /d/g=259", rule: "name", always: true},
		{name: "old name", now: &base, names: "/d=257 /d/g=258", rule: "name", data: true},
		{name: "both names of a rename", now: &base, names: "/d=257 /d/g=258", entries: here + " /d/g=258", rule: "names name", always: true},
		{name: "no name of a rename", now: &base, names: "/d=257 /d/g=258", entries: "/d=257", rule: "names name", always: true},
		{name: "a name that nobody gave", now: &base, entries: "/d=257 /d/x=258", rule: "name", always: true},
		// The file ended in the block in no version before it was longer: what lies there then was
		// written.
		{name: "a tail of nobody", now: with(func(n *node) { n.size, n.data = 8192, bytesOf("a", 8192) }), have: with(func(n *node) {
			n.size, n.data = 8192, append(bytesOf("a", 5000), bytesOf("x", 3192)...)
		}), rule: "data", always: true},
		{name: "a stale tail of a file that has shrunk", old: with(func(n *node) { n.size, n.data = 8192, bytesOf("o", 8192) }), now: with(func(n *node) { n.data = bytesOf("a", 5000) }),
			have: with(func(n *node) { n.size, n.data = 8192, append(bytesOf("a", 5000), bytesOf("o", 3192)...) }), rule: "data size", always: true},
	} {
		old := &base
		if c.old != nil {
			old = c.old
		}
		have, names, entries := c.have, c.names, c.entries
		if have == nil {
			have = old
		}
		if names == "" {
			names = here
		}
		if entries == "" {
			entries = here
		}
		nodes := func(n *node) map[inodeID]*node { return map[inodeID]*node{dirD: dir, file: n, twin: &base} }
		before, after, crashed := madeTree(t, here, nodes(old)), madeTree(t, names, nodes(c.now)), madeTree(t, entries, nodes(have))
		for _, promise := range []Promise{Nothing, Data, Inode, All} {
			r := &Recording{Ops: []Op{{Text: "change"}, {Text: "sync", Promise: promise}}, ids: []inodeID{{}, file}, trees: []*tree{before, after, after}, clock: []int64{1, 10, 10}}
			rule := ""
			if l := r.compare(&Epoch{begun: 2, ended: 2}, crashed); l != nil {
				rule = l.Rule
			}
			want := ""
			if c.always || promise >= Inode || promise == Data && c.data {
				want = c.rule
			}
			if (rule == "") != (want == "") || !slices.Contains(strings.Fields(want), rule) && rule != "" {
				t.Errorf("%s, promise %d: have loss %q want %q", c.name, promise, rule, want)
			}
		}
	}
}

func bytesOf(s string, n int) []byte { return []byte(strings.Repeat(s, n)) }

// TestStepsBetween: between two steps of one operation an inode may have a mode that no version
// has; after its end it may not.
func TestStepsBetween(t *testing.T) {
	n := func(mode uint32) *node { return &node{kind: format.S_IFREG, attrs: attrs{mode: mode}} }
	v := func(mode uint32) *tree { return madeTree(t, "/f=258", map[inodeID]*node{file: n(mode)}) }
	for _, steps := range []bool{false, true} {
		for _, promise := range []Promise{Nothing, Inode} {
			r := &Recording{Ops: []Op{{Text: "put", Steps: steps}, {Promise: promise}}, ids: []inodeID{{}, file}, trees: []*tree{v(0o644), v(0o755), v(0o755)}}
			l := r.compare(&Epoch{begun: 2, ended: 2}, v(0o600))
			if free := steps && promise == Nothing; free != (l == nil) {
				t.Errorf("steps %v, promise %d: have %v", steps, promise, l)
			}
		}
	}
}

// TestTailOfGrown: a file was cut off in a block and has grown again. What was there before may be
// there until that is synced, and nothing else.
func TestTailOfGrown(t *testing.T) {
	v := func(data []byte) *tree {
		return madeTree(t, "/f=258", map[inodeID]*node{file: {kind: format.S_IFREG, size: uint64(len(data)), data: data}})
	}
	was, cut, grown := bytesOf("o", 8192), bytesOf("o", 5000), append(bytesOf("o", 5000), make([]byte, 3192)...)
	for _, c := range []struct {
		name   string
		tail   string
		synced int // since which version
		lost   bool
	}{
		{"zeros", "\x00", 2, false},
		{"what was there", "o", 1, false},
		{"what was there, and the growth is synced", "o", 2, true},
		{"what was never there", "x", 1, true},
	} {
		r := &Recording{Ops: []Op{{Text: "truncate"}, {Text: "truncate up"}, {}}, ids: make([]inodeID, 3), trees: []*tree{v(was), v(cut), v(grown), v(grown)}}
		r.Ops[c.synced] = Op{Promise: Inode}
		r.ids[c.synced] = file
		l := r.compare(&Epoch{begun: 3, ended: 3}, v(append(bytesOf("o", 5000), bytesOf(c.tail, 3192)...)))
		if c.lost != (l != nil && l.Rule == "data") {
			t.Errorf("%s: have %v", c.name, l)
		}
	}
}

// TestTears: each write that is torn is there as its head in one state and as its tail in another.
func TestTears(t *testing.T) {
	tk, dev := sched.NewTask(t.Name()), blockdev.NewMemory(256<<20)
	if err := mkfs.Make(tk, dev, mkfs.Options{}); err != nil {
		t.Fatal(err)
	}
	rec, err := NewRecorder(tk, []blockdev.Device{dev}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.FS.Mkdir(tk, "/d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := rec.FS.Sync(tk); err != nil {
		t.Fatal(err)
	}
	r, err := rec.End(tk)
	if err != nil {
		t.Fatal(err)
	}
	heads, tails := map[int]bool{}, map[int]bool{}
	for _, s := range r.States(Choice{PerFlush: 1000}) {
		for _, x := range s.Torn {
			n := len(r.records[r.epochs[s.Flush-1].pending[x.Write-1]].Data)
			switch {
			case x.From == 0 && x.To < n:
				heads[s.Flush*1000+x.Write] = true
			case x.From > 0 && x.To == n:
				tails[s.Flush*1000+x.Write] = true
			default:
				t.Errorf("write %d of %d bytes is torn to [%d, %d)", x.Write, n, x.From, x.To)
			}
		}
	}
	if len(heads) < 2 || len(heads) != len(tails) {
		t.Errorf("%d writes are torn to a head and %d to a tail, want 2 at least, and the same", len(heads), len(tails))
	}
}
