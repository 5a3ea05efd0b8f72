package explore

import (
	"fmt"
	"strings"
	"sync"

	"btrlab/internal/sched"
)

// orderGraph learns in which order classes are taken that have no rank (lockdep checks the others).
// It outlives executions: two tasks that take two classes in both orders are found without the
// deadlock, in the first execution that shows both.
//
// Models kernel/locking/lockdep.c's dependency graph, with classes as bits.
type orderGraph struct {
	mu    sync.Mutex
	after []after // a short list: few classes are without a rank
	first map[[2]sched.ClassID]string
}

// after is the classes that were taken while one was held.
type after struct {
	held  sched.ClassID
	taken sched.ClassSet
}

// under lists the classes that were taken under c.
func (g *orderGraph) under(c sched.ClassID) *sched.ClassSet {
	for i := range g.after {
		if a := &g.after[i]; a.held == c {
			return &a.taken
		}
	}
	g.after = append(g.after, after{held: c})
	return &g.after[len(g.after)-1].taken
}

// lockOrder records that k takes op's lock with what it holds, and fails when that closes a cycle.
// The last of the held locks is the one it takes.
func (w *world) lockOrder(k *task, op *sched.Op) {
	if sched.ClassByID(op.Class).Rank != 0 {
		return
	}
	g := w.order
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first == nil {
		g.first = map[[2]sched.ClassID]string{}
	}
	held := k.t.HeldLocks
	for _, h := range held[:len(held)-1] {
		if h.Class == op.Class || sched.ClassByID(h.Class).Rank != 0 {
			continue
		}
		taken := g.under(h.Class)
		if taken.Has(op.Class) {
			continue
		}
		taken.Add(op.Class)
		g.first[[2]sched.ClassID{h.Class, op.Class}] = fmt.Sprintf("%s is taken under %s by task %s in step %d", className(op.Class), className(h.Class), k, len(w.ev)-1)
		if path := g.path(op.Class, h.Class, &sched.ClassSet{}); path != nil {
			var b strings.Builder
			b.WriteString("lock order inversion: " + g.first[[2]sched.ClassID{h.Class, op.Class}])
			for i := 1; i < len(path); i++ {
				b.WriteString("; " + g.first[[2]sched.ClassID{path[i-1], path[i]}])
			}
			if w.viol == nil {
				w.viol = &Violation{Kind: KindOrder, What: b.String()}
			}
			return
		}
	}
}

// path finds a chain of classes, each taken under the one before, from from to to; it goes through
// none of seen.
func (g *orderGraph) path(from, to sched.ClassID, seen *sched.ClassSet) []sched.ClassID {
	if from == to {
		return []sched.ClassID{from}
	}
	seen.Add(from)
	for c := range g.under(from).All {
		if seen.Has(c) {
			continue
		}
		if p := g.path(c, to, seen); p != nil {
			return append([]sched.ClassID{from}, p...)
		}
	}
	return nil
}

func className(id sched.ClassID) string { return sched.ClassByID(id).Name }
