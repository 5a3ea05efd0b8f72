package format

// A balance under way has an item in the tree of roots: what it was asked for, for the next mount
// to go on with. Models struct btrfs_balance_item.

// BalanceItemSize is the size of a balance item in bytes.
const BalanceItemSize = 8 + 3*balanceArgsSize + 4*8

const balanceArgsSize = 136

// BALANCE_OBJECTID is the object of the balance item's key: (BALANCE_OBJECTID, TEMPORARY_ITEM_KEY,
// 0).
const BALANCE_OBJECTID = ^uint64(0) - 3 // -4

// TREE_RELOC_OBJECTID is the tree of a relocation under way in Linux; the offset of its root item's
// key is the subvolume.
const TREE_RELOC_OBJECTID = ^uint64(0) - 7 // -8

// Of BalanceItem.Flags: the types of chunks, and whether metadata may lose redundancy.
const (
	BalanceData     = 1 << 0
	BalanceSystem   = 1 << 1
	BalanceMetadata = 1 << 2
	BalanceForce    = 1 << 3
)

// Of BalanceArgs.Flags: which of the filters count.
const (
	BalanceProfiles     = 1 << 0
	BalanceUsage        = 1 << 1
	BalanceDevid        = 1 << 2
	BalanceDrange       = 1 << 3
	BalanceVrange       = 1 << 4
	BalanceLimit        = 1 << 5
	BalanceLimitRange   = 1 << 6
	BalanceStripesRange = 1 << 7
	BalanceConvert      = 1 << 8
	BalanceSoft         = 1 << 9
	BalanceUsageRange   = 1 << 10
)

// ProfileSingle stands for profile single in the profiles of a filter, where no bit would mean
// none. Models BTRFS_AVAIL_ALLOC_BIT_SINGLE.
const ProfileSingle = 1 << 48

// ExtendedProfile is the profile in the flags of a chunk as the filters of a balance name it.
// Models chunk_to_extended().
func ExtendedProfile(flags uint64) uint64 {
	if p := flags & BlockGroupProfileMask; p != 0 {
		return p
	}
	return ProfileSingle
}

// BalanceArgs is what of one type of chunks is balanced. Models struct btrfs_disk_balance_args.
type BalanceArgs struct {
	Profiles uint64 // chunks of these, as ExtendedProfile names them
	// chunks of which from UsageMin to less than UsageMax percent are used; with BalanceUsage less
	// than UsageMax alone
	UsageMin, UsageMax     uint32
	Devid                  uint64 // chunks with a stripe on this device
	Pstart, Pend           uint64 // and that stripe in these bytes of it
	Vstart, Vend           uint64 // chunks with logical addresses in these
	Target                 uint64 // the profile of new chunks, as ExtendedProfile names it
	Flags                  uint64
	LimitMin, LimitMax     uint32 // at most so many chunks; with BalanceLimit LimitMax alone
	StripesMin, StripesMax uint32 // chunks of so many stripes
}

// BalanceItem is a balance under way.
type BalanceItem struct {
	Flags      uint64
	Data, Meta BalanceArgs
	Sys        BalanceArgs
}

// Args is the part for chunks of a type, given by their flags; nil when they are not balanced.
func (b *BalanceItem) Args(flags uint64) *BalanceArgs {
	switch {
	case flags&BlockGroupData != 0 && b.Flags&BalanceData != 0:
		return &b.Data
	case flags&BlockGroupSystem != 0 && b.Flags&BalanceSystem != 0:
		return &b.Sys
	case flags&BlockGroupMetadata != 0 && b.Flags&BalanceMetadata != 0:
		return &b.Meta
	}
	return nil
}

// Decode reads BalanceItemSize bytes.
func (b *BalanceItem) Decode(p []byte) {
	_ = p[BalanceItemSize-1]
	b.Flags = le.Uint64(p)
	for i, a := range b.args() {
		a.decode(p[8+i*balanceArgsSize:])
	}
}

// Encode writes BalanceItemSize bytes.
func (b *BalanceItem) Encode(p []byte) {
	clear(p[:BalanceItemSize])
	le.PutUint64(p, b.Flags)
	for i, a := range b.args() {
		a.encode(p[8+i*balanceArgsSize:])
	}
}

func (b *BalanceItem) args() [3]*BalanceArgs { return [3]*BalanceArgs{&b.Data, &b.Meta, &b.Sys} }

// A usage or a limit that is no range has all 64 bits of its two fields.
func (a *BalanceArgs) decode(p []byte) {
	a.Profiles = le.Uint64(p)
	a.UsageMin, a.UsageMax = le.Uint32(p[8:]), le.Uint32(p[12:])
	a.Devid, a.Pstart, a.Pend, a.Vstart, a.Vend = le.Uint64(p[16:]), le.Uint64(p[24:]), le.Uint64(p[32:]), le.Uint64(p[40:]), le.Uint64(p[48:])
	a.Target, a.Flags = le.Uint64(p[56:]), le.Uint64(p[64:])
	a.LimitMin, a.LimitMax = le.Uint32(p[72:]), le.Uint32(p[76:])
	a.StripesMin, a.StripesMax = le.Uint32(p[80:]), le.Uint32(p[84:])
	if a.Flags&BalanceUsage != 0 {
		a.UsageMin, a.UsageMax = 0, uint32(min(le.Uint64(p[8:]), 100))
	}
	if a.Flags&BalanceLimit != 0 {
		a.LimitMin, a.LimitMax = 0, uint32(min(le.Uint64(p[72:]), 1<<32-1))
	}
}

func (a *BalanceArgs) encode(p []byte) {
	le.PutUint64(p, a.Profiles)
	le.PutUint32(p[8:], a.UsageMin)
	le.PutUint32(p[12:], a.UsageMax)
	for i, v := range [...]uint64{a.Devid, a.Pstart, a.Pend, a.Vstart, a.Vend, a.Target, a.Flags} {
		le.PutUint64(p[16+8*i:], v)
	}
	le.PutUint32(p[72:], a.LimitMin)
	le.PutUint32(p[76:], a.LimitMax)
	le.PutUint32(p[80:], a.StripesMin)
	le.PutUint32(p[84:], a.StripesMax)
	if a.Flags&BalanceUsage != 0 {
		le.PutUint64(p[8:], uint64(a.UsageMax))
	}
	if a.Flags&BalanceLimit != 0 {
		le.PutUint64(p[72:], uint64(a.LimitMax))
	}
}
