package treelog

import (
	"errors"

	"btrlab/internal/data/inode"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// steps are the steps of a log, and of its replay, in the place of which the museum puts a wrong
// one.
type steps struct {
	// of a log
	items    func(c *copier, has bool) error
	hole     func(c *copier, start, end, size uint64) error
	sums     func(c *copier, x *logged) error
	lost     func(c *copier, ino format.Ino) []int
	planName func(c *copier, p *plan, ino format.Ino, k nameKey) error
	nameLost func(ip *inode.Inode, transid uint64)
	pin      func(t *sched.Task, names *lock.RWSem)
	unpin    func(t *sched.Task, names *lock.RWSem)
	// of a sync
	enter    func(l *Logs, t *sched.Task, h *transaction.Handle, log *tree, n uint64) (done bool, err error)
	writeTop func(l *Logs, t *sched.Task, h *transaction.Handle, blocks *ctree.DirtySet, named []*ctree.Flight, bytenr uint64, level int) error
	super    func(l *Logs, t *sched.Task, h *transaction.Handle, bytenr uint64, level int) error
	// of a replay
	pinBlock   func(r *replayer, bytenr uint64) error
	shrink     func(r *replayer, l *log, dir format.Ino, name string) error
	makeRoom   func(r *replayer, l *log, n name) error
	dropXattrs func(r *replayer, l *log, ino format.Ino) error
}

// stepsOf are the steps under a policy: the right ones but for the wrong orders in its set, which
// policy.Toggle.Does describes.
func stepsOf(set *policy.Set) steps {
	s := steps{
		items:      (*copier).items,
		hole:       (*copier).hole,
		sums:       (*copier).sumsOf,
		lost:       func(c *copier, ino format.Ino) []int { return c.log.removed.byIno[ino] },
		planName:   (*copier).planName,
		nameLost:   func(ip *inode.Inode, transid uint64) { ip.ItemsChanged(transid) },
		pin:        func(t *sched.Task, names *lock.RWSem) { names.RLock(t) },
		unpin:      func(t *sched.Task, names *lock.RWSem) { names.RUnlock(t) },
		enter:      (*Logs).enter,
		writeTop:   (*Logs).writeTop,
		super:      (*Logs).writeSuper,
		pinBlock:   (*replayer).pinBlock,
		shrink:     (*replayer).shrink,
		makeRoom:   (*replayer).makeRoom,
		dropXattrs: (*replayer).dropXattrs,
	}
	for x := range set.All() {
		if wrong := museum[policy.Wrong(x)]; wrong != nil {
			wrong(&s)
		}
	}
	return s
}

// museum has the wrong orders of logs.
var museum = map[policy.Wrong]func(s *steps){
	policy.WrongLogChangedXattrs: func(s *steps) {
		s.items = func(c *copier, has bool) error {
			if !c.names {
				return nil
			}
			return c.items(has)
		}
	},
	policy.WrongLogNoHoles: func(s *steps) {
		s.hole = func(c *copier, start, end, _ uint64) error { return c.hole(start, end, 0) }
	},
	policy.WrongLogNoSums: func(s *steps) { s.sums = func(*copier, *logged) error { return nil } },
	policy.WrongLogLostNames: func(s *steps) {
		s.lost = func(*copier, format.Ino) []int { return nil }
		s.nameLost = func(*inode.Inode, uint64) {}
	},
	policy.WrongLogTakenNames: func(s *steps) {
		s.planName = func(*copier, *plan, format.Ino, nameKey) error { return nil }
	},
	policy.WrongLogNamesUnpinned: func(s *steps) {
		s.pin, s.unpin = func(*sched.Task, *lock.RWSem) {}, func(*sched.Task, *lock.RWSem) {}
	},
	policy.WrongLogShareEarly: func(s *steps) {
		s.enter = func(l *Logs, t *sched.Task, h *transaction.Handle, log *tree, n uint64) (bool, error) {
			if log.synced < n && log.busy[n%2] {
				return true, nil
			}
			return l.enter(t, h, log, n)
		}
	},
	policy.WrongLogSuperFirst: func(s *steps) {
		s.writeTop = func(l *Logs, t *sched.Task, h *transaction.Handle, blocks *ctree.DirtySet, named []*ctree.Flight, bytenr uint64, level int) error {
			err := l.writeSuper(t, h, bytenr, level)
			return errors.Join(err, l.writeTop(t, h, blocks, named, bytenr, level))
		}
	},
	policy.WrongLogNoFlush: func(s *steps) {
		s.super = func(l *Logs, t *sched.Task, h *transaction.Handle, bytenr uint64, level int) error {
			return l.cfg.Trans.WriteLogSuper(t, h, bytenr, level, false)
		}
	},
	policy.WrongLogUnpinned: func(s *steps) { s.pinBlock = func(*replayer, uint64) error { return nil } },
	policy.WrongLogKeepSize: func(s *steps) {
		s.shrink = func(*replayer, *log, format.Ino, string) error { return nil }
	},
	policy.WrongLogNoConflicts: func(s *steps) { s.makeRoom = func(*replayer, *log, name) error { return nil } },
	policy.WrongLogKeepXattrs: func(s *steps) {
		s.dropXattrs = func(*replayer, *log, format.Ino) error { return nil }
	},
}
