package fs

import (
	"errors"
	"fmt"
	"strings"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/sched"
)

// FlushRoot is the door of qgroup. A failed commit aborts the file system; the reservation then
// fails over its limit.
func (d flushers) FlushRoot(t *sched.Task, root uint64) {
	_ = d.f.engine.SyncRoot(t, root) // recorded for fsync
	_ = d.f.trans.Commit(t)
}

// Qgroup is a quota group as it is shown.
type Qgroup struct {
	qgroup.Info
	// Path is the subvolume's, "/" for the top-level one; empty for a group above level 0, and for
	// one whose subvolume is gone.
	Path string
}

// Quotas is the state of quotas.
type Quotas struct {
	On     bool
	Simple bool // they count what a subvolume has allocated, not what it reaches
	// Inconsistent says that the counts are out of date, and Rescan that one was under way when the
	// image was left.
	Inconsistent, Rescan bool
	Groups               []Qgroup // by id
}

// Quotas tells what the qgroups have, as of the last commit, and may have.
func (f *FS) Quotas(t *sched.Task) (Quotas, error) {
	flags := f.trans.Quota.StatusFlags()
	q := Quotas{On: f.trans.Quota.On(), Simple: flags&format.QgroupStatusSimple != 0,
		Inconsistent: flags&format.QgroupStatusInconsistent != 0, Rescan: flags&format.QgroupStatusRescan != 0}
	for _, g := range f.trans.Quota.Groups(t) {
		x := Qgroup{Info: g}
		if g.ID>>format.QgroupLevelShift == 0 {
			var err error
			if x.Path, err = f.subvolPath(t, g.ID); err != nil && !errors.Is(err, errno.ENOENT) {
				return q, fmt.Errorf("path of subvolume %d: %w", g.ID, err)
			}
		}
		q.Groups = append(q.Groups, x)
	}
	return q, nil
}

// subvolPath is the path of the subvolume with tree id. ENOENT when it is gone, or its name leads
// nowhere.
func (f *FS) subvolPath(t *sched.Task, id uint64) (string, error) {
	var names []string
	for id != format.FS_TREE_OBJECTID {
		parent, ref, err := f.subvolParent(t, id)
		if err != nil {
			return "", err
		}
		v, err := f.subvol(t, parent)
		if err != nil {
			return "", err
		}
		names = append(names, ref.Name)
		for dir := format.Ino(ref.Dirid); dir != format.FIRST_FREE_OBJECTID; {
			up, err := f.store.Names(t, v.root, dir)
			if err == nil && len(up) == 0 {
				err = errno.ENOENT
			}
			if err != nil {
				return "", err
			}
			names, dir = append(names, up[0].Name), up[0].Dir
		}
		id = parent
	}
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		b.WriteString("/" + names[i])
	}
	if b.Len() == 0 {
		return "/", nil
	}
	return b.String(), nil
}

// configureQuota writes back what is dirty, which has reserved nothing if quotas are off, and then
// does the change.
func (f *FS) configureQuota(t *sched.Task, do func(t *sched.Task) error) error {
	if err := f.writable(); err != nil {
		return err
	}
	if err := f.Sync(t); err != nil {
		return err
	}
	return do(t)
}

// EnableQuota turns quotas on: each subvolume gets a qgroup, which counts what it has. The caller
// has no operation in flight. EINVAL when simple ones are on. Models btrfs_ioctl_quota_ctl() with
// BTRFS_QUOTA_CTL_ENABLE.
func (f *FS) EnableQuota(t *sched.Task) error {
	return f.configureQuota(t, func(t *sched.Task) error { return f.trans.EnableQuota(t, false) })
}

// EnableSimpleQuota is EnableQuota with qgroups that count what a subvolume allocates from now on,
// for as long as anything refers to it. Only Linux 6.7 and later open the image afterwards, also
// when quotas are off again. Models BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA.
func (f *FS) EnableSimpleQuota(t *sched.Task) error {
	return f.configureQuota(t, func(t *sched.Task) error { return f.trans.EnableQuota(t, true) })
}

// DisableQuota turns quotas off; counts and limits are gone. The caller has no operation in flight.
// Models btrfs_ioctl_quota_ctl() with BTRFS_QUOTA_CTL_DISABLE.
func (f *FS) DisableQuota(t *sched.Task) error { return f.configureQuota(t, f.trans.DisableQuota) }

// RescanQuota counts again from the start; other tasks wait meanwhile as for a commit.
// qgroup.ErrOff when quotas are off, EINVAL when they are simple.
func (f *FS) RescanQuota(t *sched.Task) error {
	if err := f.writable(); err != nil {
		return err
	}
	return f.trans.RescanQuota(t)
}

// LimitQuota limits qgroup id to bytes of what it reaches, or with excl of what no other subvolume
// reaches; with none the limit goes. The change is durable when it returns. Errors: qgroup.ErrOff,
// ENOENT without such a qgroup, EROFS.
func (f *FS) LimitQuota(t *sched.Task, id, bytes uint64, excl, none bool) error {
	if err := f.writable(); err != nil {
		return err
	}
	return f.trans.LimitQuota(t, id, bytes, excl, none)
}
