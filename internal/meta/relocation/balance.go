package relocation

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// NoneError says that no balance is under way. It is ENOENT.
type NoneError struct{}

// Error is for people.
func (NoneError) Error() string { return "no balance is under way" }

// Is reports whether target is ENOENT.
func (NoneError) Is(target error) bool { return target == error(errno.ENOENT) }

// Progress is how far a balance is.
type Progress struct {
	Chunk      volumes.ChunkInfo // that is moved now
	Used       uint64            // bytes of it
	Done       int               // chunks that were moved
	Considered int               // chunks to be moved, as counted at the start
}

// Moved is what a balance did.
type Moved struct {
	Chunks int    // that were moved
	Of     int    // that there were
	Bytes  uint64 // of extents
}

// Balance moves the chunks that b asks for, the last ones first: it notes b in the tree of roots,
// so that after a crash, or when Stop says so, Resume or the next mount by Linux goes on; at the
// end the note goes. each, if set, is told before each chunk.
//
// Errors: EINVAL for a profile that the devices cannot have, or that takes redundancy from metadata
// without BalanceForce; EBUSY when a balance is under way already; those of Group. After an error
// of Group the note stays.
//
// Models fs/btrfs/volumes.c:btrfs_balance() and __btrfs_balance().
//
// Preconditions: as Group.
func (m *Mover) Balance(t *sched.Task, b *format.BalanceItem, each func(Progress)) (Moved, error) {
	if _, ok, err := m.Status(t); err != nil || ok {
		if err == nil {
			err = fmt.Errorf("a balance is under way, resume or cancel it: %w", errno.EBUSY)
		}
		return Moved{}, err
	}
	if err := m.checkTargets(b); err != nil {
		return Moved{}, err
	}
	defer m.Trans.Extents.FreeProfiles()
	if err := m.aim(t, b); err != nil {
		return Moved{}, err
	}
	err := m.change(t, func(h *transaction.Handle) error {
		p := make([]byte, format.BalanceItemSize)
		b.Encode(p)
		return m.Trans.Forest.InsertItem(t, h.Trans(), m.Trans.Root(format.ROOT_TREE_OBJECTID), balanceKey(), p)
	})
	if err != nil {
		return Moved{}, err
	}
	return m.balance(t, b, each)
}

// Resume goes on with the balance that is noted: ENOENT when there is none. What has the profile
// already that is asked for is left. Models btrfs_resume_balance() and update_balance_args().
func (m *Mover) Resume(t *sched.Task, each func(Progress)) (Moved, error) {
	b, ok, err := m.Status(t)
	if err == nil && !ok {
		err = NoneError{}
	}
	if err != nil {
		return Moved{}, err
	}
	for _, a := range []*format.BalanceArgs{&b.Data, &b.Meta, &b.Sys} {
		switch {
		case a.Flags&format.BalanceConvert != 0:
			a.Flags |= format.BalanceSoft
		case a.Flags&(format.BalanceUsage|format.BalanceUsageRange) == 0:
			// What was moved before the crash is full.
			a.Flags, a.UsageMax = a.Flags|format.BalanceUsage, 90
		}
	}
	defer m.Trans.Extents.FreeProfiles()
	if err := m.aim(t, &b); err != nil {
		return Moved{}, err
	}
	return m.balance(t, &b, each)
}

// chunkBlocks is more blocks than the items of new chunks need in the tree of chunks, all of whose
// leaves a conversion may copy.
const chunkBlocks = 16

// aim gives new chunks the profiles that b asks for, and makes room for the tree of chunks in one
// of them first: each new chunk has its item there, and the last of a device would take its place.
// FreeProfiles ends it.
func (m *Mover) aim(t *sched.Task, b *format.BalanceItem) error {
	for _, typ := range []uint64{format.BlockGroupData, format.BlockGroupMetadata, format.BlockGroupSystem} {
		if a := b.Args(typ); a != nil && a.Flags&format.BalanceConvert != 0 {
			m.Trans.Extents.SetProfile(typ, profileOf(a.Target).Flag)
		}
	}
	if err := m.Trans.Extents.MakeRoom(t, format.BlockGroupSystem, chunkBlocks*uint64(m.Trans.Forest.NodeSize()), 0); err != nil {
		return err
	}
	return m.commitNew(t)
}

// Status is the balance that is noted; ok is false when there is none.
func (m *Mover) Status(t *sched.Task) (b format.BalanceItem, ok bool, err error) {
	var p ctree.Path
	defer p.Release(t)
	ok, err = m.Trans.Forest.SearchSlot(t, nil, m.Trans.Root(format.ROOT_TREE_OBJECTID), balanceKey(), &p, 0, false)
	if ok && len(p.Item()) < format.BalanceItemSize {
		return b, false, fmt.Errorf("corrupt root tree: balance item of %d bytes, want %d: %w", len(p.Item()), format.BalanceItemSize, errno.EUCLEAN)
	}
	if ok {
		b.Decode(p.Item())
	}
	return b, ok, err
}

// Cancel forgets the balance that is noted: what was moved stays moved. ENOENT when there is none.
// Models btrfs_cancel_balance().
func (m *Mover) Cancel(t *sched.Task) error {
	_, ok, err := m.Status(t)
	if err == nil && !ok {
		err = NoneError{}
	}
	if err != nil {
		return err
	}
	return m.change(t, func(h *transaction.Handle) error {
		return m.Trans.DeleteItem(t, h, m.Trans.Root(format.ROOT_TREE_OBJECTID), balanceKey())
	})
}

func balanceKey() format.Key {
	return format.Key{Objectid: format.BALANCE_OBJECTID, Type: format.TEMPORARY_ITEM_KEY}
}

// checkTargets refuses what no chunk can become. Models validate_convert_profile() and the check of
// redundancy of btrfs_balance().
func (m *Mover) checkTargets(b *format.BalanceItem) error {
	v := m.Trans.Volumes
	for _, x := range []struct {
		what string
		typ  uint64
	}{{"data", format.BlockGroupData}, {"metadata", format.BlockGroupMetadata}, {"system", format.BlockGroupSystem}} {
		a := b.Args(x.typ)
		if a == nil || a.Flags&format.BalanceConvert == 0 {
			continue
		}
		p := profileOf(a.Target)
		switch {
		case p == nil:
			return fmt.Errorf("convert %s to %#x, want one profile: %w", x.what, a.Target, errno.EINVAL)
		case v.Writable() < p.DevsMin:
			return fmt.Errorf("convert %s to %s, which wants %d devices, have %d: %w", x.what, p.Name, p.DevsMin, v.Writable(), errno.EINVAL)
		case x.typ == format.BlockGroupData || b.Flags&format.BalanceForce != 0 || redundant(p):
			continue
		}
		for _, c := range v.Chunks() {
			if have := format.ProfileOf(c.Chunk.Type); c.Chunk.Type&x.typ != 0 && redundant(have) {
				return fmt.Errorf("convert %s from %s to %s, which loses redundancy, want --force: %w", x.what, have.Name, p.Name, errno.EINVAL)
			}
		}
	}
	return nil
}

// redundant reports whether the profile bears the loss of some bytes.
func redundant(p *format.Profile) bool { return p.Copies > 1 || p.Tolerated > 0 }

// profileOf is the profile that a filter names; nil if it names none, or several.
func profileOf(extended uint64) *format.Profile {
	if extended == format.ProfileSingle {
		extended = 0
	} else if extended == 0 || extended&format.BlockGroupProfileMask != extended {
		return nil
	}
	return format.ProfileOf(extended)
}

// balance moves the chunks, and deletes the note.
func (m *Mover) balance(t *sched.Task, b *format.BalanceItem, each func(Progress)) (Moved, error) {
	list := m.wanted(t, b)
	res := Moved{Of: len(m.Trans.Volumes.Chunks())}
	for _, g := range list {
		if each != nil {
			each(Progress{g.chunk, g.used, res.Chunks, len(list)})
		}
		n, err := m.Group(t, format.Logical(g.chunk.Logical))
		res.Bytes += n
		if err != nil {
			return res, err
		}
		res.Chunks++
	}
	return res, m.Cancel(t)
}

// candidate is a chunk with the bytes that are used of it.
type candidate struct {
	chunk volumes.ChunkInfo
	used  uint64
}

// wanted lists the chunks that b asks for, the last one first. Chunks that the balance makes are
// none of them.
func (m *Mover) wanted(t *sched.Task, b *format.BalanceItem) (list []candidate) {
	count := make(map[*format.BalanceArgs]uint32)
	for _, c := range slices.Backward(m.Trans.Volumes.Chunks()) {
		a := b.Args(c.Chunk.Type)
		if a == nil {
			continue
		}
		used := m.Trans.Extents.GroupAt(format.Logical(c.Logical)).Used()
		if !Wants(a, &c, used) {
			continue
		}
		if count[a]++; a.Flags&(format.BalanceLimit|format.BalanceLimitRange) != 0 && count[a] > a.LimitMax {
			continue
		}
		list = append(list, candidate{c, used})
	}
	for a, n := range count {
		if a.Flags&format.BalanceLimitRange != 0 && n < a.LimitMin {
			list = slices.DeleteFunc(list, func(x candidate) bool { return b.Args(x.chunk.Chunk.Type) == a })
		}
	}
	return list
}

// Wants reports whether the filters of a take a chunk of their type, of which used bytes are used.
// Models should_balance_chunk().
func Wants(a *format.BalanceArgs, c *volumes.ChunkInfo, used uint64) bool {
	has := func(flag uint64) bool { return a.Flags&flag != 0 }
	profile := format.ExtendedProfile(c.Chunk.Type)
	switch {
	case has(format.BalanceProfiles) && a.Profiles&profile == 0,
		has(format.BalanceUsage) && used >= thresh(c.Chunk.Length, a.UsageMax, 1),
		has(format.BalanceUsageRange) && (used < thresh(c.Chunk.Length, a.UsageMin, 0) || used >= thresh(c.Chunk.Length, a.UsageMax, 1)),
		has(format.BalanceDevid) && !onDevice(a, c, has(format.BalanceDrange)),
		has(format.BalanceVrange) && (c.Logical >= a.Vend || c.End() <= a.Vstart),
		has(format.BalanceStripesRange) && (len(c.Chunk.Stripes) < int(a.StripesMin) || len(c.Chunk.Stripes) > int(a.StripesMax)),
		has(format.BalanceConvert) && has(format.BalanceSoft) && a.Target == profile:
		return false
	}
	return true
}

// thresh is that many percent of a chunk's length, zero percent being the least.
func thresh(length uint64, percent uint32, zero uint64) uint64 {
	switch {
	case percent == 0:
		return zero
	case percent >= 100:
		return length
	}
	return length * uint64(percent) / 100
}

// onDevice reports whether the chunk has a stripe on the device, with ranged in the bytes of it
// that a names.
func onDevice(a *format.BalanceArgs, c *volumes.ChunkInfo, ranged bool) bool {
	return slices.ContainsFunc(c.Chunk.Stripes, func(s format.Stripe) bool {
		return s.Devid == a.Devid && (!ranged || s.Offset < a.Pend && s.Offset+c.Chunk.StripeBytes() > a.Pstart)
	})
}

// LeaveDevice moves all chunks that have a stripe on the device, the last one first. Models
// btrfs_shrink_device() to zero.
//
// Preconditions: as Group; no new chunk takes the device (volumes.Device.Retire).
func (m *Mover) LeaveDevice(t *sched.Task, devid uint64, each func(Progress)) error {
	a := format.BalanceArgs{Flags: format.BalanceDevid, Devid: devid}
	all := format.BalanceItem{Flags: format.BalanceData | format.BalanceMetadata | format.BalanceSystem, Data: a, Meta: a, Sys: a}
	list := m.wanted(t, &all)
	for i, g := range list {
		if each != nil {
			each(Progress{g.chunk, g.used, i, len(list)})
		}
		if _, err := m.Group(t, format.Logical(g.chunk.Logical)); err != nil {
			return err
		}
	}
	if left := m.wanted(t, &all); len(left) > 0 {
		return errors.New("relocation: a new chunk lies on the device")
	}
	return nil
}
