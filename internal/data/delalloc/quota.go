package delalloc

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/sched"
)

// fresh is the ranges whose data bytes a reservation has reserved in the qgroup; other blocks of
// its range were reserved already, as they are dirty. It does not allocate up to smallFresh of
// them. Models struct extent_changeset.
type fresh struct {
	n     int
	first [smallFresh]span
	more  []span
}

const smallFresh = 2

type span struct{ start, end uint64 }

func (f *fresh) add(start, end uint64) {
	if f.n < smallFresh {
		f.first[f.n] = span{start, end}
	} else {
		f.more = append(f.more, span{start, end})
	}
	f.n++
}

func (f *fresh) at(i int) *span {
	if i < smallFresh {
		return &f.first[i]
	}
	return &f.more[i-smallFresh]
}

// reserve promises the bytes of [start, end) that are not reserved. EDQUOT leaves everything as it
// was. Models btrfs_qgroup_reserve_data(). Difference: the bits are set after the promise is made,
// so that whoever clears one has what it stands for; should writeback have taken some meanwhile, it
// is asked again.
func (f *fresh) reserve(t *sched.Task, ip *inode.Inode, start, end uint64, noflush bool) error {
	q, root := ip.FS.Quota, ip.Root.ID
	for {
		n := end - start - ip.IOTree.Count(t, start, end, extentio.QgroupReserved)
		if err := q.ReserveData(t, root, n, noflush); err != nil {
			return err
		}
		var set uint64
		for at := start; ; {
			a, b, ok := ip.IOTree.SetMissing(t, at, end, extentio.QgroupReserved)
			if !ok {
				break
			}
			f.add(a, b)
			set, at = set+b-a, b
		}
		if set <= n {
			q.Free(t, root, n-set, qgroup.Data)
			return nil
		}
		for i := range f.n {
			ip.IOTree.Clear(t, f.at(i).start, f.at(i).end, extentio.QgroupReserved)
		}
		q.Free(t, root, n, qgroup.Data)
		f.n, f.more = 0, f.more[:0]
	}
}

// free gives back what lies at from or beyond.
func (f *fresh) free(t *sched.Task, ip *inode.Inode, from uint64) {
	for i := range f.n {
		if s := f.at(i); s.end > max(from, s.start) {
			ip.FreeQuota(t, max(from, s.start), s.end)
			s.end = max(from, s.start)
		}
	}
}

// topUp reserves, over any limit, the blocks of [start, end) that are about to be dirty and are not
// reserved any more: they were, as dirty blocks, when the write looked, and writeback or a truncate
// has had them since. So a limit may be exceeded by a batch; Linux then writes without a
// reservation.
func topUp(t *sched.Task, ip *inode.Inode, start, end uint64) {
	q, root := ip.FS.Quota, ip.Root.ID
	n := end - start - ip.IOTree.Count(t, start, end, extentio.QgroupReserved)
	if n == 0 {
		return
	}
	q.ForceData(t, root, n)
	for at := start; ; {
		a, b, ok := ip.IOTree.SetMissing(t, at, end, extentio.QgroupReserved)
		if !ok {
			break
		}
		n, at = n-(b-a), b
	}
	if int64(n) < 0 {
		q.ForceData(t, root, -n)
	} else {
		q.Free(t, root, n, qgroup.Data)
	}
}
