package crash

import (
	"errors"
	"fmt"
	"maps"
	gopath "path"
	"slices"

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

// Judge looks at the crash s: nil is nothing lost. A log is replayed twice: the power goes a second time when the first replay is about to
// write its superblock. After a replay a new file must be possible as well.
func (r *Recording) Judge(t *sched.Task, s State) (*Loss, error) {
	dev, err := r.Device(t, s)
	if err != nil {
		return nil, err
	}
	if l, err := checked(t, dev, "the image is damaged"); l != nil || err != nil {
		return l, err
	}
	logged := hasLog(t, dev)
	if logged {
		if err := r.cutReplay(t, dev); err != nil {
			return nil, err
		}
	}
	f, err := r.open(t, dev)
	if err != nil {
		return lossf("open", "%v", err), nil
	}
	have, err := observe(t, f, nil)
	if err != nil {
		f.Pause(t)
		return lossf("read", "%v", err), nil
	}
	if l := r.compare(&r.epochs[s.Flush-1], have); l != nil {
		f.Pause(t)
		return l, nil
	}
	if logged {
		if l := usable(t, f, have); l != nil {
			f.Pause(t)
			return l, nil
		}
	}
	if err := f.Close(t); err != nil {
		return lossf("close", "%v", err), nil
	}
	if dev.Writes(t) == 0 {
		return nil, nil
	}
	return checked(t, dev, "the image is damaged after it was opened")
}

// open opens what a crash left.
func (r *Recording) open(t *sched.Task, dev blockdev.Device) (*fs.FS, error) {
	return fs.Open(t, dev, fs.Options{Memory: fs.NoLimit, EndioWorkers: 1, CacheBlocks: 256, Policy: r.policy})
}

// cutReplay replays the log on dev until the power goes: all that the replay wrote is there, but for its superblock. A log that
// cannot be replayed is the next open's to find.
func (r *Recording) cutReplay(t *sched.Task, dev blockdev.Device) error {
	cut := dm.NewFlakey(dev, dm.Fault{Op: blockdev.OpWrite, Start: format.SuperOffset, End: format.SuperOffset + format.SuperSize})
	if f, err := r.open(t, cut); err == nil {
		f.Pause(t)
		return errors.New("a replay has ended without a superblock")
	}
	return nil
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

// usable makes a file after a replay, which has an inode number of its own, and removes it. An image without room for it is content.
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

// checked is what a check finds.
func checked(t *sched.Task, dev blockdev.Device, what string) (*Loss, error) {
	res, err := check.Check(t, dev, check.Options{})
	if err != nil {
		return lossf("check", "%v", err), nil
	}
	if !res.Clean {
		return lossf("check", "%s: %v", what, res.Findings[0]), nil
	}
	return nil, nil
}

// window is the versions that a crash may show of something: trees[lo:hi+1].
type window struct{ lo, hi int }

// compare compares the tree after a crash in e with the versions that it may show.
func (r *Recording) compare(e *Epoch, have *tree) *Loss {
	base := window{0, e.begun}
	synced := map[inodeID]int{} // since which version
	for i := range e.ended {
		switch r.Ops[i].Promise {
		case All:
			base.lo = i
		case Inode:
			synced[r.ids[i]] = i
		}
	}
	loose := e.begun > e.ended && r.Ops[e.begun-1].Loose
	for id, lo := range synced {
		if lo < base.lo {
			delete(synced, id)
		}
	}
	if l := r.compareNames(base, synced, have, loose); l != nil {
		return l
	}
	if l := r.compareFiles(e, have); l != nil {
		return l
	}
	for _, path := range slices.Sorted(maps.Keys(have.names)) {
		id := have.names[path]
		if r.files[id] != nil {
			continue
		}
		w := base
		if lo, ok := synced[id]; ok {
			w.lo = lo
		}
		if l := r.compareNode(w, path, id, have.nodes[id], loose); l != nil {
			return l
		}
	}
	return nil
}

// compareNames: each name leads where it led in one of the versions, and each inode has as many names as in one of them.
func (r *Recording) compareNames(base window, synced map[inodeID]int, have *tree, loose bool) *Loss {
	paths := map[string]bool{}
	ids := map[inodeID]bool{}
	for v := base.lo; v <= base.hi; v++ {
		for p, id := range r.trees[v].names {
			paths[p], ids[id] = true, true
		}
	}
	for p, id := range have.names {
		paths[p], ids[id] = true, true
	}
	moved := map[inodeID]bool{}
	if len(synced) > 0 {
		moved = r.moved(base)
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		w := base
		for id, lo := range synced {
			if v := r.trees[lo]; lo > w.lo && !v.below(p, moved) && (v.names[p] == id || v.names[gopath.Dir(p)] == id && p != "/") {
				w.lo = lo
			}
		}
		ok := loose
		for v := w.lo; v <= w.hi && !ok; v++ {
			ok = r.trees[v].names[p] == have.names[p]
		}
		if ok {
			continue
		}
		id, there := have.names[p]
		switch want, was := r.trees[w.lo].names[p]; {
		case !there:
			return lossf("name", "%s is gone, want inode %d, durable since %s", p, want.ino, r.since(w.lo))
		case !was:
			return lossf("name", "%s is there as inode %d, want no such name, durable since %s", p, id.ino, r.since(w.lo))
		default:
			return lossf("name", "%s is inode %d, want inode %d, durable since %s", p, id.ino, want.ino, r.since(w.lo))
		}
	}
	if loose {
		return nil
	}
	for id := range ids {
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

// moved are the directories that have more than one path in the versions of w. An fsync of what lies below does not make their new one durable.
func (r *Recording) moved(w window) map[inodeID]bool {
	paths, moved := map[inodeID]string{}, map[inodeID]bool{}
	for v := w.lo; v <= w.hi; v++ {
		for p, id := range r.trees[v].names {
			if n := r.trees[v].nodes[id]; n.kind != format.S_IFDIR {
				continue
			}
			if old, ok := paths[id]; ok && old != p {
				moved[id] = true
			}
			paths[id] = p
		}
	}
	return moved
}

// below reports whether p lies below one of the directories.
func (v *tree) below(p string, dirs map[inodeID]bool) bool {
	for len(dirs) > 0 && p != "/" {
		p = gopath.Dir(p)
		if dirs[v.names[p]] {
			return true
		}
	}
	return false
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
	return r.compareData(w, path, have, vs)
}

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

func (r *Recording) compareData(w window, path string, have *node, vs []*node) *Loss {
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
		if ok || slices.ContainsFunc(vs, func(n *node) bool { return staleTail(n, have, i, p) }) {
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

// staleTail reports whether p, block i of have, is as in version n, which ended in it, and have has grown since. What lies in the block beyond that end
// may be what was there before the file was cut off: the zeros that go over it are data, and a commit may have the new size before
// the device has them. In Linux it is the same.
func staleTail(n, have *node, i uint64, p []byte) bool {
	if n == nil || n.size <= i*blockSize || n.size >= i*blockSize+uint64(len(p)) || have.size <= n.size {
		return false
	}
	return sameBlock(p[:n.size-i*blockSize], n.block(i, len(p)))
}
