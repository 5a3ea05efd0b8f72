package inode

import (
	"btrlab/internal/data/ordered"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/sched"
)

// What an inode has reserved in its subvolume's qgroup. A data byte is reserved exactly while it
// has QGROUP_RESERVED in the io tree, or belongs to an ordered extent's QuotaData: the bit is set
// after the reservation is made and goes before it is given back. Of tree blocks there is a node
// for each outstanding extent. With quotas off no bit is set, and all is zero.
//
// Models btrfs_qgroup_release_data(), btrfs_qgroup_free_data() and the qgroup_rsv_reserved of an
// inode's block_rsv.

// FreeQuota gives back what is reserved for the data of [start, end), which will not be written.
// Models btrfs_qgroup_free_data().
func (ip *Inode) FreeQuota(t *sched.Task, start, end uint64) {
	if ip.FS.Quota.On() {
		ip.FS.Quota.Free(t, ip.Root.ID, ip.IOTree.ClearCount(t, start, end, extentio.QgroupReserved), qgroup.Data)
	}
}

// orderQuota moves the reservation of an ordered extent's range to the extent; one that goes to
// space which is counted already gives it back.
func (ip *Inode) orderQuota(t *sched.Task, oe *ordered.Extent) {
	n := ip.IOTree.ClearCount(t, oe.Start, oe.End(), extentio.QgroupReserved)
	if oe.Type == ordered.Regular {
		oe.QuotaData = n
		return
	}
	ip.FS.Quota.Free(t, ip.Root.ID, n, qgroup.Data)
}

// TakeQuota takes the tree blocks that the outstanding extents no longer ask for; the caller gives
// them back or to a transaction.
func (ip *Inode) TakeQuota(t *sched.Task) (surplus uint64) {
	if !ip.FS.Quota.On() {
		return 0
	}
	a := &ip.acct
	ip.mu.Lock(t)
	if a.quota > 0 {
		a.rsv.Write(t, nameReserved)
		if size := uint64(max(ip.Outstanding()-a.lent, 0)) * ip.FS.Space.NodeSize(); a.quota > size {
			surplus = a.quota - size
			a.quota = size
		}
	}
	ip.mu.Unlock(t)
	return surplus
}

// CommitQuota gives the reservation of an ordered extent to the transaction that has its items: a
// handle is open.
func (ip *Inode) CommitQuota(t *sched.Task, oe *ordered.Extent) {
	q := ip.FS.Quota
	q.Convert(t, ip.Root.ID, oe.QuotaMeta)
	q.CommitData(t, ip.Root.ID, oe.QuotaData)
	oe.QuotaData, oe.QuotaMeta = 0, 0
}

// DropQuota gives back the reservation of an ordered extent that gets no items.
func (ip *Inode) DropQuota(t *sched.Task, oe *ordered.Extent) {
	q := ip.FS.Quota
	q.Free(t, ip.Root.ID, oe.QuotaMeta, qgroup.MetaPrealloc)
	q.Free(t, ip.Root.ID, oe.QuotaData, qgroup.Data)
	oe.QuotaData, oe.QuotaMeta = 0, 0
}
