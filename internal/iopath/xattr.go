package iopath

import (
	"errors"
	"strings"

	"btrlab/internal/data/inode"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

const (
	// capabilities is the attribute that gives a program privileges, whoever runs it. Models
	// XATTR_NAME_CAPS.
	capabilities = "security.capability"
	// unitsXattr is a change of an attribute in reserved items: the attribute, the inode item.
	unitsXattr = 2
)

// RemovePrivs takes the file's capabilities away, because its bytes are about to change: a program
// that others have written must not have them. It searches the tree unless ip.NoSec(), and to take
// them away it needs a transaction; both may sleep. With try, AgainPrivs is the answer instead. On
// error nothing has changed.
//
// Models fs/inode.c:file_remove_privs() with security/commoncap.c:cap_inode_killpriv();
// labs/reference 1.1 step 3. Difference: setuid and setgid bits stay, as they do for a writer with
// CAP_FSETID, which every caller here is.
//
// Preconditions:
//   - ip.NoSec(), or ip is locked for writing.
func (e *Env) RemovePrivs(t *sched.Task, ip *inode.Inode, try bool) error {
	switch {
	case ip.NoSec():
		return nil
	case try:
		return kiocb.AgainPrivs
	case t.Nowait():
		t.At("remove_privs")
		t.Count(sched.CountMayBlock)
	}
	ip.AssertLocked(t)
	_, err := e.Store.Getxattr(t, ip.Root, ip.Ino, capabilities)
	if err == nil {
		err = e.ChangeXattr(t, ip, capabilities, func(h *transaction.Handle) error {
			return e.Store.Removexattr(t, h.Trans(), ip.Root, ip.Ino, capabilities)
		})
	}
	if err != nil && !errors.Is(err, errno.ENOENT) {
		return err
	}
	ip.SetNoSec(true)
	return nil
}

// ChangeXattr lets do change the attribute of the name, and the ctime with it. ENOSPC and ENOENT of
// do say that nothing has changed; any other error aborts the transaction. Models
// btrfs_setxattr_trans().
//
// Preconditions:
//   - ip is locked for writing.
func (e *Env) ChangeXattr(t *sched.Task, ip *inode.Inode, name string, do func(h *transaction.Handle) error) error {
	ip.AssertLocked(t)
	now := e.Now()
	h, err := e.Trans.StartIn(t, ip.Root, unitsXattr)
	if err != nil {
		return err
	}
	switch err := do(h); {
	case errors.Is(err, errno.ENOSPC), errors.Is(err, errno.ENOENT): // nothing has changed
		return errors.Join(h.End(t), err)
	case err != nil:
		h.Abort(t, err)
		return errors.Join(err, h.End(t))
	}
	if strings.HasPrefix(name, "security.") {
		ip.SetNoSec(false)
	}
	ip.Change(t, func(it *format.InodeItem) { it.Ctime = now })
	ip.LastTransid.Store(h.Transid())
	ip.ItemsChanged(h.Transid())
	return h.End(t)
}
