package ctree

import (
	"btrlab/internal/format"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// What changes of the trees of logs cost, for a task that counts. Not in it: the locks of
// neighbours, which are held under the path's own.

// logCounts is where the task counts what happens in b; nil for a task that does not count, and for
// the trees that are no logs.
func (b *Buffer) logCounts(t *sched.Task) *sched.LogCounts {
	if t.Counts == nil || b == nil || b.owner != format.TREE_LOG_OBJECTID {
		return nil
	}
	return &t.Counts.Log
}

// holds says that the path has the write lock of a level from now on.
func (p *Path) holds(t *sched.Task, level int) {
	p.locks[level] = lockWrite
	if n := p.Nodes[level].logCounts(t); n != nil {
		n.HeldNs[level] -= t.Now() // letGo adds the end
	}
}

// letGo says that the path has no lock of a level any more; the caller unlocks it.
func (p *Path) letGo(t *sched.Task, level int) {
	if p.locks[level] == lockWrite {
		if n := p.Nodes[level].logCounts(t); n != nil {
			n.HeldNs[level] += t.Now()
		}
	}
	p.locks[level] = lockNone
}

// step counts n steps for each level that the path has write-locked.
func (p *Path) step(t *sched.Task, n int) {
	if t.Counts == nil {
		return
	}
	for i := 0; i <= p.top; i++ {
		if c := p.Nodes[i].logCounts(t); c != nil && p.locks[i] == lockWrite {
			c.Steps[i] += int64(n)
		}
	}
}

// Touch spends and counts n accesses to fields of items of the leaf.
func (p *Path) Touch(t *sched.Task, n int) {
	t.Spend(cost.Field, n)
	p.step(t, n)
}

// count adds n to c, if b is a block of a log.
func (b *Buffer) count(t *sched.Task, c sched.LogCounter, n int) {
	if l := b.logCounts(t); l != nil {
		l.N[c] += int64(n)
	}
}
