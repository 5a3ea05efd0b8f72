package fs

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/relocation"
	"btrlab/internal/sched"
)

// mover moves block groups of the file system; stop, if set, is asked before each batch. What is
// dirty is committed first, and what a balance by Linux left half done is cleared away.
//
// Preconditions of all that is done with it: no other task uses the file system.
func (f *FS) mover(t *sched.Task, stop func() bool) (*relocation.Mover, error) {
	if err := f.writable(); err != nil {
		return nil, err
	}
	if err := f.Sync(t); err != nil {
		return nil, err
	}
	if err := f.clearRelocation(t); err != nil {
		return nil, err
	}
	m := &relocation.Mover{Config: relocation.Config{Trans: f.trans, Sums: f.store.Csums, Stop: stop,
		Subvol: func(t *sched.Task, id uint64) (*ctree.Root, error) {
			r, err := f.loggedSubvol(t, id)
			if errors.Is(err, errno.EROFS) {
				err = nil // a read-only snapshot's blocks move, too
			}
			return r, err
		},
		Forget: func(t *sched.Task) {
			for _, n := range f.nodes(t) {
				n.ip.Extents.DropAll(t)
			}
		}}}
	return m, nil
}

// clearRelocation clears away what a balance by Linux leaves that did not end: relocation trees,
// and the copies of data that nothing points at yet. Models btrfs_recover_relocation(). Difference:
// the trees are dropped where the kernel merges what they have.
func (f *FS) clearRelocation(t *sched.Task) error {
	if _, err := f.trans.DropRelocTrees(t); err != nil {
		return err
	}
	r, it, err := f.trans.OpenSubvol(t, format.DATA_RELOC_TREE_OBJECTID)
	if err != nil {
		return err
	}
	vol, err := f.newSubvol(t, r, &it)
	if err != nil {
		return err
	}
	if err := f.cleanOrphans(t, vol); err != nil {
		return fmt.Errorf("delete the copies of a balance: %w", err)
	}
	return f.Sync(t)
}

// Balance moves the chunks that b asks for: relocation.Mover.Balance. stop, if set, is asked now
// and then; when it is true the balance pauses, with relocation.ErrStopped.
//
// Preconditions: no other task uses the file system.
func (f *FS) Balance(t *sched.Task, b *format.BalanceItem, stop func() bool, each func(relocation.Progress)) (relocation.Moved, error) {
	m, err := f.mover(t, stop)
	if err != nil {
		return relocation.Moved{}, err
	}
	return m.Balance(t, b, each)
}

// ResumeBalance goes on with a balance, ours or Linux's: relocation.Mover.Resume.
//
// Preconditions: as Balance.
func (f *FS) ResumeBalance(t *sched.Task, stop func() bool, each func(relocation.Progress)) (relocation.Moved, error) {
	m, err := f.mover(t, stop)
	if err != nil {
		return relocation.Moved{}, err
	}
	return m.Resume(t, each)
}

// CancelBalance forgets the balance that is under way. ENOENT when there is none.
//
// Preconditions: as Balance.
func (f *FS) CancelBalance(t *sched.Task) error {
	m, err := f.mover(t, nil)
	if err != nil {
		return err
	}
	return m.Cancel(t)
}

// BalanceStatus is the balance that is under way; ok is false when there is none.
func (f *FS) BalanceStatus(t *sched.Task) (b format.BalanceItem, ok bool, err error) {
	m := relocation.Mover{Config: relocation.Config{Trans: f.trans}}
	return m.Status(t)
}

// Relocate empties the chunk at the logical address and removes it.
//
// Preconditions: as Balance.
func (f *FS) Relocate(t *sched.Task, logical uint64) error {
	m, err := f.mover(t, nil)
	if err != nil {
		return err
	}
	if c, ok := f.vols.Lookup(logical); !ok || c.Logical != logical {
		return fmt.Errorf("no chunk begins at %d: %w", logical, errno.ENOENT)
	}
	_, err = m.Group(t, format.Logical(logical))
	return err
}
