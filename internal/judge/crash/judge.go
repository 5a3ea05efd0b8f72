package crash

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
)

// Loss is a broken promise. Rule is one word; Text says what is lost.
type Loss struct {
	Rule string
	Text string
}

func (l *Loss) String() string { return l.Rule + ": " + l.Text }

func lossf(rule, format string, args ...any) *Loss { return &Loss{rule, fmt.Sprintf(format, args...)} }

// Judge looks at the crash s: nil is nothing lost. The power goes a second time as well: of an
// image with a log when the replay is about to write its superblock, and of one without when the
// first commit after the open is, if there is one. Where that commit has written before its
// superblock what no flush covers, it goes once more after the superblock. After a replay a new
// file must be possible as well.
func (r *Recording) Judge(t *sched.Task, s State) (*Loss, error) {
	e := &r.epochs[s.Flush-1]
	dev, err := r.Device(t, s)
	if err != nil {
		return nil, err
	}
	if l := checked(t, dev, "the image is damaged"); l != nil {
		return l, nil
	}
	logged := hasLog(t, dev)
	if logged {
		if err := r.cutReplay(t, dev); err != nil {
			return nil, err
		}
	}
	life := dm.NewLogWrites(dev, nil)
	if l := r.live(t, e, life, logged); l != nil || dev.Writes(t) == 0 {
		return l, nil
	}
	if l := checked(t, dev, "the image is damaged after it was opened"); l != nil {
		return l, nil
	}
	if !logged {
		if dev, err = r.Device(t, s); err != nil {
			return nil, err
		}
		r.cutCommit(t, dev)
		if l := r.relive(t, e, dev, "the power went again at the next superblock"); l != nil {
			return l, nil
		}
	}
	for _, kept := range uncovered(r.order(life.Records(t), &r.sb)) {
		if dev, err = r.Device(t, s); err != nil {
			return nil, err
		}
		for _, w := range kept {
			if err := dev.Cover(t, w.Data, w.Off); err != nil {
				return nil, err
			}
		}
		if l := r.relive(t, e, dev, "the power went again after the next superblock"); l != nil {
			return l, nil
		}
	}
	return nil, nil
}

// live opens what a crash in e left on dev, compares it with the versions, uses it after a replay,
// and closes it.
func (r *Recording) live(t *sched.Task, e *Epoch, dev blockdev.Device, use bool) *Loss {
	f, err := r.open(t, dev)
	if err != nil {
		return lossf("open", "%v", err)
	}
	have, err := observe(t, f, nil)
	if err != nil {
		f.Pause(t)
		return lossf("read", "%v", err)
	}
	l := r.compare(e, have)
	if l == nil && use {
		l = usable(t, f, have)
	}
	if l != nil {
		f.Pause(t)
		return l
	}
	if err := f.Close(t); err != nil {
		return lossf("open", "and closed again: %v", err)
	}
	return nil
}

// relive is live after a second power cut, which when describes, with a check before and after.
func (r *Recording) relive(t *sched.Task, e *Epoch, dev *dm.Overlay, when string) *Loss {
	l := checked(t, dev, "the image is damaged")
	if l == nil {
		l = r.live(t, e, dev, hasLog(t, dev))
	}
	if l == nil {
		l = checked(t, dev, "the image is damaged after it was opened")
	}
	if l != nil {
		return lossf("again", "%s: %s: %s", when, l.Rule, l.Text)
	}
	return nil
}

// open opens what a crash left.
func (r *Recording) open(t *sched.Task, dev blockdev.Device) (*fs.FS, error) {
	return fs.Open(t, []blockdev.Device{dev}, fs.Options{Memory: fs.NoLimit, EndioWorkers: 1, CacheBlocks: 256, Policy: r.policy})
}

// noSuper is dev without power from the next superblock on.
func noSuper(dev blockdev.Device) blockdev.Device {
	return dm.NewFlakey(dev, dm.Fault{Op: blockdev.OpWrite, Start: format.SuperOffset, End: format.SuperOffset + format.SuperSize})
}

// cutReplay replays the log on dev until the power goes: all that the replay wrote is there, but
// for its superblock. A log that cannot be replayed is the next open's to find.
func (r *Recording) cutReplay(t *sched.Task, dev blockdev.Device) error {
	if f, err := r.open(t, noSuper(dev)); err == nil {
		f.Pause(t)
		return errors.New("a replay has ended without a superblock")
	}
	return nil
}

// cutCommit opens and closes dev until the power goes at a superblock. What an open without a
// replay does is commit at the end.
func (r *Recording) cutCommit(t *sched.Task, dev blockdev.Device) {
	f, err := r.open(t, noSuper(dev))
	if err != nil {
		return
	}
	if f.Close(t) != nil {
		f.Pause(t)
	}
}

// uncovered are the states after a superblock that was written before a flush had covered all that
// was written before it: the writes that are there in each. A commit that flushes first has none.
func uncovered(l []dm.Record) (states [][]dm.Record) {
	safe := 0 // records before it are on the medium
	for i, w := range l {
		switch {
		case w.Kind == dm.RecordFlush:
			safe = max(safe, w.Safe)
		case w.Kind == dm.RecordWrite && w.Off == format.SuperOffset:
			loose := func(o dm.Record) bool { return o.Kind == dm.RecordWrite && !isSuper(&o) }
			if slices.ContainsFunc(l[safe:i], loose) {
				kept := slices.DeleteFunc(slices.Clone(l[:safe]), func(o dm.Record) bool { return o.Kind != dm.RecordWrite })
				states = append(states, append(kept, w))
			}
		}
	}
	return states
}

// hasLog reports whether the next open replays a log.
func hasLog(t *sched.Task, dev blockdev.Device) bool {
	b := make([]byte, format.SuperSize)
	if blockdev.Read(t, dev, b, format.SuperOffset) != nil {
		return false
	}
	var s format.Super
	s.Decode(b)
	return s.LogRoot != 0
}

// usable makes a file after a replay, which has an inode number of its own, and removes it. An
// image without room for it is content.
func usable(t *sched.Task, f *fs.FS, have *tree) *Loss {
	const path = "/.after the crash"
	x, err := f.Create(t, path, 0o644)
	if errors.Is(err, errno.ENOSPC) || errors.Is(err, errno.EDQUOT) {
		return nil // full, or at a limit
	}
	if err != nil {
		return lossf("use", "%v", err)
	}
	at := x.Stat(t)
	if err := x.Close(t); err != nil {
		return lossf("use", "%v", err)
	}
	if have.nodes[inodeID{at.Subvol, at.Ino}] != nil {
		return lossf("use", "a new file is inode %d, which is in use", at.Ino)
	}
	if err := f.Unlink(t, path); err != nil {
		return lossf("use", "%v", err)
	}
	return nil
}

// checked has the findings of a check.
func checked(t *sched.Task, dev blockdev.Device, what string) *Loss {
	res, err := check.Check(t, dev, check.Options{})
	if err != nil {
		return lossf("check", "%v", err)
	}
	if !res.Clean {
		return lossf("check", "%s: %v", what, res.Findings[0])
	}
	return nil
}

// window is the versions that a crash may show of something: trees[lo:hi+1].
type window struct{ lo, hi int }

// compare compares the tree after a crash in e with the versions that it may show.
func (r *Recording) compare(e *Epoch, have *tree) *Loss {
	base := window{0, e.begun}
	synced := map[inodeID]int{} // since which version
	whole := map[inodeID]int{}  // the same, with mode, owner, flags and times
	for i := range e.ended {
		switch r.Ops[i].Promise {
		case All:
			base.lo = i
		case Data:
			synced[r.ids[i]] = i
		case Inode:
			synced[r.ids[i]], whole[r.ids[i]] = i, i
		}
	}
	loose := e.begun > e.ended && r.Ops[e.begun-1].Loose
	for id, lo := range synced {
		if lo < base.lo {
			delete(synced, id)
		}
	}
	if !loose {
		if l := r.compareNames(base, synced, have); l != nil {
			return l
		}
	}
	if l := r.compareFiles(e, have); l != nil {
		return l
	}
	for _, path := range slices.Sorted(maps.Keys(have.names)) {
		id := have.names[path]
		if r.files[id] != nil {
			continue
		}
		w, all := base, base
		w.lo, all.lo = max(w.lo, synced[id]), max(all.lo, whole[id])
		if l := r.compareNode(w, path, id, have.nodes[id], loose); l != nil {
			return l
		}
		if loose {
			continue
		}
		if l := r.compareAttrs(all, path, id, have.nodes[id]); l != nil {
			return l
		}
	}
	return nil
}

// compareNames: each entry of a directory leads where it led in one of the versions, and each inode
// has as many names as in one of them. An entry is compared wherever its directory is: the new path
// of a directory may come with an entry from before the rename.
func (r *Recording) compareNames(base window, synced map[inodeID]int, have *tree) *Loss {
	entries := map[entry]bool{}
	ids := map[inodeID]bool{}
	note := func(v *tree) {
		for e, id := range v.entries {
			entries[e], ids[id] = true, true
		}
	}
	for v := base.lo; v <= base.hi; v++ {
		note(r.trees[v])
	}
	note(have)
	var bad *Loss // of the first path
	for x := range entries {
		if have.nodes[x.dir] == nil {
			continue // the names of its inode, or of the directory, are counted
		}
		w := base
		for id, lo := range synced {
			if lo > w.lo && (x.dir == id || r.trees[lo].entries[x] == id) {
				w.lo = lo
			}
		}
		ok := false
		for v := w.lo; v <= w.hi && !ok; v++ {
			ok = r.trees[v].entries[x] == have.entries[x]
		}
		if !ok {
			if l := r.badName(w, x, have); bad == nil || l.Text < bad.Text {
				bad = l
			}
		}
	}
	if bad != nil {
		return bad
	}
	for _, id := range slices.SortedFunc(maps.Keys(ids), compareIDs) {
		lo := max(base.lo, synced[id])
		least, most := 1<<30, 0
		for v := lo; v <= base.hi; v++ {
			least, most = min(least, r.trees[v].count[id]), max(most, r.trees[v].count[id])
		}
		if n := have.count[id]; n < least || n > most {
			want := fmt.Sprint(least)
			if most > least {
				want = fmt.Sprintf("%d to %d", least, most)
			}
			return lossf("names", "inode %d has %d names, want %s", id.ino, n, want)
		}
	}
	return nil
}

func compareIDs(a, b inodeID) int {
	return cmp.Or(cmp.Compare(a.subvol, b.subvol), cmp.Compare(a.ino, b.ino))
}

// badName says what is wrong with the entry x, which is as in none of the versions of w.
func (r *Recording) badName(w window, x entry, have *tree) *Loss {
	p := have.pathOf(x)
	id, there := have.entries[x]
	switch want, was := r.trees[w.lo].entries[x]; {
	case !there:
		return lossf("name", "%s is gone, want inode %d, durable since %s", p, want.ino, r.since(w.lo))
	case !was:
		return lossf("name", "%s is there as inode %d, want no such name, durable since %s", p, id.ino, r.since(w.lo))
	default:
		return lossf("name", "%s is inode %d, want inode %d, durable since %s", p, id.ino, want.ino, r.since(w.lo))
	}
}

// since names the operation that made version v durable, or the start.
func (r *Recording) since(v int) string {
	if v >= len(r.Ops) || r.Ops[v].Promise == Nothing {
		return "the start"
	}
	return fmt.Sprintf("operation %d, %s", v+1, r.Ops[v].Text)
}

// compareNode: an inode is as in one of the versions, attribute by attribute and block by block.
func (r *Recording) compareNode(w window, path string, id inodeID, have *node, loose bool) *Loss {
	var vs []*node // nil for a version without the inode
	some := false
	for v := w.lo; v <= w.hi; v++ {
		n := r.trees[v].nodes[id]
		vs, some = append(vs, n), some || n != nil
	}
	if !some {
		if loose {
			return nil
		}
		return lossf("inode", "%s is inode %d, which nobody made", path, id.ino)
	}
	match := func(same func(n *node) bool) bool {
		return loose || slices.ContainsFunc(vs, func(n *node) bool { return n != nil && same(n) })
	}
	switch {
	case !slices.ContainsFunc(vs, func(n *node) bool { return n != nil && n.kind == have.kind }):
		return lossf("inode", "%s has type %o", path, have.kind)
	case !match(func(n *node) bool { return n.target == have.target }):
		return lossf("link", "%s leads to %q", path, have.target)
	case !match(func(n *node) bool { return n.xattrs == have.xattrs }):
		return lossf("attribute", "%s has %s, want %s, durable since %s", path, orNone(have.xattrs), orNone(first(vs).xattrs), r.since(w.lo))
	}
	if have.kind != format.S_IFREG {
		return nil
	}
	least, most := ^uint64(0), uint64(0)
	for _, n := range vs {
		size := uint64(0)
		if n != nil {
			size = n.size
		}
		least, most = min(least, size), max(most, size)
	}
	if (have.size < least || have.size > most) && !loose {
		return lossf("size", "%s has %d bytes, want %d to %d, durable since %s", path, have.size, least, most, r.since(w.lo))
	}
	if loose {
		return nil
	}
	return r.compareData(w, path, id, have, vs)
}

// compareAttrs: mode, owner, flags and times are each those of a version. A version lacks the
// inode, or one of them is of the versions.
func (r *Recording) compareAttrs(w window, path string, id inodeID, have *node) *Loss {
	var vs []*node
	steps := false // an operation of several steps has made or changed it
	for v := w.lo; v <= w.hi; v++ {
		n := r.trees[v].nodes[id]
		if v > w.lo && r.Ops[v-1].Steps && n != r.trees[v-1].nodes[id] {
			steps = true
		}
		if n != nil && (len(vs) == 0 || n != vs[len(vs)-1]) {
			vs = append(vs, n)
		}
	}
	some := func(same func(n *node) bool) bool { return slices.ContainsFunc(vs, same) }
	want := &vs[0].attrs
	switch {
	case steps:
	case !some(func(n *node) bool { return n.mode == have.mode }):
		return lossf("mode", "%s has mode %04o, want %04o, durable since %s", path, have.mode, want.mode, r.since(w.lo))
	case !some(func(n *node) bool { return n.uid == have.uid }) || !some(func(n *node) bool { return n.gid == have.gid }):
		return lossf("owner", "%s is %d:%d's, want %d:%d, durable since %s", path, have.uid, have.gid, want.uid, want.gid, r.since(w.lo))
	case !some(func(n *node) bool { return n.flags == have.flags }):
		return lossf("flags", "%s has flags %#x, want %#x, durable since %s", path, have.flags, want.flags, r.since(w.lo))
	}
	if !some(func(n *node) bool { return n.rdev == have.rdev }) {
		return lossf("inode", "%s is device %#x, want %#x", path, have.rdev, want.rdev)
	}
	for i := range times {
		of := times[i].of
		if x := of(&have.attrs); !some(func(n *node) bool { return of(&n.attrs).Equal(x) }) && !r.gave(w, x) {
			return lossf("time", "%s has %s %s, want %s, durable since %s", path, times[i].name, stampText(x), stampText(of(want)), r.since(w.lo))
		}
	}
	return nil
}

// times are the times of an inode.
var times = []struct {
	name string
	of   func(a *attrs) time.Time
}{
	{"atime", func(a *attrs) time.Time { return a.atime }},
	{"mtime", func(a *attrs) time.Time { return a.mtime }},
	{"ctime", func(a *attrs) time.Time { return a.ctime }},
	{"otime", func(a *attrs) time.Time { return a.otime }},
}

func stampText(x time.Time) string { return x.UTC().Format("2006-01-02T15:04:05.999999999") }

func first(vs []*node) *node {
	for _, n := range vs {
		if n != nil {
			return n
		}
	}
	return &node{}
}

func orNone(s string) string {
	if s == "" {
		return "no attributes"
	}
	return s
}

func (r *Recording) compareData(w window, path string, id inodeID, have *node, vs []*node) *Loss {
	for i := uint64(0); i*blockSize < have.size; i++ {
		p := have.block(i, blockSize)
		ok, differ := false, false
		for k, n := range vs {
			var want []byte
			if n != nil {
				want = n.block(i, len(p))
			}
			ok = ok || sameBlock(p, want)
			differ = differ || k > 0 && n != vs[0]
		}
		if !ok && differ && have.flags&format.InodeNoDataCow != 0 {
			ok = true // written in place, and torn
		}
		if ok || r.staleTail(w, id, vs, i, p) {
			continue
		}
		at, x, y := uint64(0), byte(0), byte(0)
		want := first(vs).block(i, len(p))
		for j := range p {
			b := byte(0)
			if j < len(want) {
				b = want[j]
			}
			if p[j] != b {
				at, x, y = i*blockSize+uint64(j), p[j], b
				break
			}
		}
		return lossf("data", "%s at %d has %#02x, want %#02x, durable since %s", path, at, x, y, r.since(w.lo))
	}
	return nil
}

// staleTail reports whether p, block i of a file, is as in a version that ended in it and had grown
// in a later one. What lies in the block beyond that end may be what was there before the file was
// cut off: the zeros that go over it are data, and a commit may have the new size before the device
// has them. In Linux it is the same. Each such byte is one that some version had there.
func (r *Recording) staleTail(w window, id inodeID, vs []*node, i uint64, p []byte) bool {
	for k, n := range vs {
		if n == nil || n.size <= i*blockSize || n.size >= i*blockSize+uint64(len(p)) {
			continue
		}
		end := n.size - i*blockSize
		grown := slices.ContainsFunc(vs[k+1:], func(m *node) bool { return m != nil && m.size > n.size })
		if grown && sameBlock(p[:end], n.block(i, len(p))) && r.hadBytes(w.hi, id, i, p, end) {
			return true
		}
	}
	return false
}

// hadBytes reports whether each byte of p from from on, of block i, is zero or as in a version up
// to the last.
func (r *Recording) hadBytes(last int, id inodeID, i uint64, p []byte, from uint64) bool {
	for j := from; j < uint64(len(p)); j++ {
		had := p[j] == 0
		for v := 0; v <= last && !had; v++ {
			if n := r.trees[v].nodes[id]; n != nil {
				b := n.block(i, len(p))
				had = j < uint64(len(b)) && b[j] == p[j]
			}
		}
		if !had {
			return false
		}
	}
	return true
}
