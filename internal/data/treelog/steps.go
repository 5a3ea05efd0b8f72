package treelog

import (
	"btrlab/internal/meta/fstree"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// ItemSteps are the steps by which an fsync puts one file extent and its checksums into a log, for
// a lab that orders them; *treelog.itemSteps is one. LogConfig.Item is called in the place of the
// order of put; an error makes the fsync commit. The path is the task's only one, and let go when
// Item returns.
type ItemSteps interface {
	// Again reports whether the log may have items in the way.
	Again() bool
	// Prepare makes the item in memory. It asks for no lock.
	Prepare(t *sched.Task)
	// Sums searches the log with a path of its own, and copies the checksums.
	Sums(t *sched.Task) error
	// Drop empties the range with a search for deletion, and leaves the path held; placed says that
	// it points at an empty item.
	Drop(t *sched.Task) (placed bool, err error)
	// Insert searches the place of the item, and leaves the path held at an empty item. EEXIST when
	// there is one.
	Insert(t *sched.Task) error
	// Fill writes the empty item field by field, Copy what was prepared in one piece.
	Fill(t *sched.Task)
	Copy(t *sched.Task)
	// Release lets the path go.
	Release(t *sched.Task)
}

// itemSteps fills it.
type itemSteps struct {
	c    *copier
	of   logged
	item fstree.Replacement
}

func (s *itemSteps) Again() bool                { return s.c.again }
func (s *itemSteps) Prepare(t *sched.Task)      { s.item.Prepare(t) }
func (s *itemSteps) Sums(*sched.Task) error     { return s.c.steps.sums(s.c, &s.of) }
func (s *itemSteps) Insert(t *sched.Task) error { return s.item.Insert(t) }
func (s *itemSteps) Fill(t *sched.Task)         { s.item.Fill(t) }
func (s *itemSteps) Copy(t *sched.Task)         { s.item.Copy(t) }
func (s *itemSteps) Release(*sched.Task)        { s.c.release() }

func (s *itemSteps) Drop(t *sched.Task) (placed bool, err error) {
	return s.item.Drop(t, !s.c.set.Has(policy.LogReplaceMulti))
}
