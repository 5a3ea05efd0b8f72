package ctree

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// SplitItem cuts the item at key in two: the first at bytes keep the key, the rest becomes the item
// newKey, and p, which must be empty, points at that, write-locked. Nobody sees a state in between.
// ENOENT when there is no such item.
//
// Models fs/btrfs/ctree.c:btrfs_split_item().
func (f *Forest) SplitItem(t *sched.Task, tr *Trans, r *Root, p *Path, key, newKey format.Key, at int) error {
	p.ForExtension = true
	found, err := f.SearchSlot(t, tr, r, key, p, format.ItemHeaderSize, true)
	p.ForExtension = false
	if err != nil {
		return err
	}
	if !found {
		p.Release(t)
		return errno.ENOENT
	}
	n, slot := p.Leaf(), p.Slot()
	nr, off, size := n.Nritems(), n.ItemOffset(slot), n.ItemSize(slot)
	if at <= 0 || at >= size || !key.Less(newKey) || slot+1 < nr && !newKey.Less(n.Key(slot+1)) {
		panic(fmt.Sprintf("ctree: split of item %v of %d bytes at %d, new key %v", key, size, at, newKey))
	}
	// The second item's data lies before the first one's, as items of higher slots do.
	data := n.Item(slot)
	head := append([]byte(nil), data[:at]...)
	copy(data, data[at:])
	copy(data[size-at:], head)
	const h, item = format.HeaderSize, format.ItemHeaderSize
	copy(n[h+(slot+2)*item:], n[h+(slot+1)*item:h+nr*item])
	n.SetNritems(nr + 1)
	n.SetItemOffset(slot, off+size-at)
	n.SetItemSize(slot, at)
	n.SetKey(slot+1, newKey)
	n.SetItemOffset(slot+1, off)
	n.SetItemSize(slot+1, size-at)
	p.Slots[0] = slot + 1
	return nil
}
