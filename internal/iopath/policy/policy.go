// Package policy says, as data, which locks an operation on a file takes and in which order it
// takes its steps. It is pure: an operation, facts about the inode and a Policy go in, a Plan comes
// out; the packages that carry out system calls ask for a plan and follow it.
//
// A Policy is a set of toggles. Each toggle is one published change, kept or refused, and carries
// its source, the kernel function it changes and the scenario that shows its effect (Toggles). A
// preset is a set of toggles with a name (Presets): an era of the kernel, or a proposal of the
// thread of seed 002.
//
// toggles.go has the switches, presets.go the sets with names, wrong.go the orders that were bugs,
// steps.go the orders of steps, space.go the modes of a reservation, plan.go what follows for an
// operation, contract.go what follows for its callers.
//
// Model: labs/reference 1 to 5, 7 and 11. Not among the toggles: CLEAN_DIRTY at the lock step,
// where kernels before 4.19 took a page's dirty mark off before the copy that may come short.
package policy

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"btrlab/internal/prose"
)

// Policy is a named set of toggles. The zero value is the kernel of 2018 before seed 002 with no
// name.
type Policy struct {
	Name string
	// About is one line for people.
	About string

	// BufUnlockInEOF: a buffered write that ends inside i_size lets i_rwsem go for the copy loop
	// and counts itself in i_dio_count instead.
	BufUnlockInEOF bool
	// SetsizeDrainFirst: setsize waits for i_dio_count before it changes i_size, not after.
	SetsizeDrainFirst bool
	// PrewaitOutside: a write inside i_size waits for writeback and ordered extents of its range
	// before it takes i_rwsem. It only shortens the waits under the lock; those stay.
	PrewaitOutside bool
	// BalanceOutside: dirty throttling after i_rwsem is let go, not between batches under it.
	BalanceOutside bool
	// BalanceBeforeFolio: dirty throttling before the pages of a batch are locked, still under
	// i_rwsem.
	BalanceBeforeFolio bool
	// WriteRangeLock: a write inside i_size holds its whole byte range instead of i_rwsem.
	WriteRangeLock bool
	// CopyByFolio: the copy loop takes one folio (a page) at a time, not a batch of 8 to 512 pages.
	CopyByFolio bool
	// StableSkipNodatasum: files without checksums do not wait for writeback of a page they
	// overwrite.
	StableSkipNodatasum bool
	// PunchRecheckOE: punch hole accepts its range only when it has neither pages nor ordered
	// extents.
	PunchRecheckOE bool
	// ExtentLockBackOff: a wait for an extent range keeps nothing of it meanwhile.
	ExtentLockBackOff bool
	// DIOShared: a direct write inside i_size takes i_rwsem shared, not exclusive to let it go for
	// the I/O.
	DIOShared bool
	// DIOLocked: a direct I/O takes a range bit of its own before the extent lock, and keeps it
	// while it waits.
	DIOLocked bool
	// DIOCsumBuffered: a direct write of a file with checksums goes through the page cache.
	DIOCsumBuffered bool
	// NowaitBuffered: a buffered write with NOWAIT is tried; without it the answer is EOPNOTSUPP.
	NowaitBuffered bool
	// NowaitTryPages: a NOWAIT write tries the locks of its pages, and waits neither for their
	// writeback nor for a read.
	NowaitTryPages bool
	// NowaitTryOrdered: a NOWAIT write that finds an ordered extent in its range answers without a
	// wait for it.
	NowaitTryOrdered bool
	// NowaitEDQUOT: a NOWAIT write says EAGAIN where a quota lacks metadata space that a flush
	// might win.
	NowaitEDQUOT bool
	// NowaitTryQuota: a NOWAIT write reserves data in its quota without a flush.
	NowaitTryQuota bool
	// NowaitTryExpand: a NOWAIT write that begins beyond EOF answers instead of zeroing a block.
	NowaitTryExpand bool
	// NowaitTryPrivs: a NOWAIT write of a file that may have capabilities answers instead of taking
	// them away.
	NowaitTryPrivs bool
	// NowaitTryFault: a NOWAIT write answers instead of taking a page fault of its source.
	NowaitTryFault bool
	// NowaitCOW: a NOWAIT write is tried on every inode, not only on one that is NODATACOW or
	// preallocated.
	NowaitCOW bool
	// DIONofault: a direct write touches no page of its source that is not there, with an ordered
	// extent in its hands: it ends what it has, faults the rest in, and goes on.
	DIONofault bool
	// DIOSyncHeld: a durable direct write that is waited for syncs the file before it lets i_rwsem
	// go.
	DIOSyncHeld bool
	// NowaitCheckTry: the check before a NOWAIT direct write tries the range of the request;
	// without it, it waits there.
	NowaitCheckTry bool
	// NowaitCheckWhole: the check before a NOWAIT direct write asks about all of the request, not
	// about its first extent.
	NowaitCheckWhole bool
	// NowaitPastEOF: a NOWAIT direct write may end beyond EOF, if the extents are there.
	NowaitPastEOF bool
	// NowaitOneExtent: a NOWAIT direct request of several extents is EAGAIN before its first one is
	// started.
	NowaitOneExtent bool
	// NowaitAsyncExt: a NOWAIT direct request that finds dirty pages in its range once more answers
	// instead of writing them back.
	NowaitAsyncExt bool
	// NowaitTryRange: a NOWAIT direct request tries its range, and does not go through the page
	// cache if a page came into it.
	NowaitTryRange bool
	// NowaitCheckOnce: the question whether a NOWAIT direct write may go in place is asked once,
	// under the range's lock.
	NowaitCheckOnce bool
	// NocowPathReuse: the search for other references uses the path of the question.
	NocowPathReuse bool
	// NocowPathFree: the path of the question is free when the checksums are searched.
	NocowPathFree bool
	// NocowEarlyRelease: the leaf is let go after the last read from it, before block group and io
	// tree are asked.
	NocowEarlyRelease bool
	// NowaitContext: a NOWAIT direct request that needs memory answers instead of waiting for
	// reclaim.
	NowaitContext bool
	// NowaitNoFlush: a NOWAIT direct write reserves metadata without a flush.
	NowaitNoFlush bool
	// NowaitTryTree: a NOWAIT request tries tree blocks and delayed references, and reads no block.
	NowaitTryTree bool
	// NocowAskAlways: a NOWAIT direct write asks the trees although the answer for its extent is
	// known.
	NocowAskAlways bool
	// UnalignedExclusive, UnalignedCheckFirst and UnalignedRetry: a direct write of sectors that
	// are not whole blocks goes to the device, with i_rwsem exclusive, with the lock that the state
	// of its block asks for, or with the shared one until it is sent back. Without any it goes
	// through the page cache.
	UnalignedExclusive, UnalignedCheckFirst, UnalignedRetry bool
	// FsyncLog: fsync writes a log tree where it can, and does not commit.
	FsyncLog bool
	// LogNoRecheck: a push of items to a neighbour leaf asks for its free space once, before it is
	// copied.
	LogNoRecheck bool
	// LogPushMin: a small leaf copies a neighbour only if that takes an item, and the right one
	// only if that takes all of them.
	LogPushMin bool
	// LogLazySum: the sizes of deleted items are added up only when data moves for them.
	LogLazySum bool
	// LogReplaceMulti: an extent that replaces others is inserted in the last leaf that had one of
	// them.
	LogReplaceMulti bool
	// LogNoExtraRelease: the path is released once after the extents of an inode.
	LogNoExtraRelease bool
	// LogPrepareFirst: a file extent item is made before its place is searched, and copied there.
	LogPrepareFirst bool
	// Wrong are orders that were bugs; see Wrongs.
	Wrong Wrong

	// SetsizeSteps, unless it is zero, is the order of the steps of a shrinking setsize, whatever
	// SetsizeDrainFirst says. It has no toggle: labs/04-truncate-race fills it.
	SetsizeSteps SetsizeOrder
	// WriteSteps, unless it is zero, is the order of the steps of a write's batch, whatever the
	// toggles of dirty throttling say. It has no toggle: it is for labs.
	WriteSteps WriteOrder
}

// Parse reads a specification: the name of a preset, of Presets, NowaitPresets, UnalignedPresets or
// FsyncPresets, then any number of "+TOGGLE" and "!TOGGLE", which switch a toggle on and off:
// "unlocked+SETSIZE_DRAIN_FIRST". The result's Name is spec.
func Parse(spec string) (Policy, error) {
	name, rest := cutToggle(spec)
	all := All()
	i := slices.IndexFunc(all, func(p Policy) bool { return p.Name == name })
	if i < 0 {
		known := slices.Concat(Names(), NowaitNames(), UnalignedNames(), FsyncNames())
		if n := prose.Nearest(name, known); n != "" {
			return Policy{}, fmt.Errorf("unknown policy %q (did you mean %q?)", name, n)
		}
		return Policy{}, fmt.Errorf("unknown policy %q, want one of %s", name, strings.Join(known, ", "))
	}
	p := all[i]
	for rest != "" {
		on := rest[0] == '+'
		name, rest = cutToggle(rest[1:])
		t := Find(name)
		if t == nil {
			if n := nearest(name); n != "" {
				return p, fmt.Errorf("unknown toggle %q in policy %q (did you mean %q?)", name, spec, n)
			}
			return p, fmt.Errorf("unknown toggle %q in policy %q, btrlab policy list shows all", name, spec)
		}
		*t.Field(&p) = on
	}
	p.Name = spec
	return p, nil
}

// cutToggle cuts s before its first + or !.
func cutToggle(s string) (name, rest string) {
	if i := strings.IndexAny(s, "+!"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// Switches are the toggles, then the wrong orders.
func Switches() iter.Seq[*Toggle] {
	return func(yield func(*Toggle) bool) {
		for _, list := range [][]Toggle{Toggles, Wrongs} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// Find is the switch with the name, nil when there is none.
func Find(name string) *Toggle {
	for t := range Switches() {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// nearest is the name of the switch that name is most likely a slip of, "" when there is none.
func nearest(name string) string {
	var names []string
	for t := range Switches() {
		names = append(names, t.Name)
	}
	return prose.Nearest(name, names)
}

// MustParse is Parse for specifications in code.
func MustParse(spec string) *Policy {
	p, err := Parse(spec)
	if err != nil {
		panic("policy: " + err.Error())
	}
	return &p
}

// On lists the names of the toggles that are on.
func (p *Policy) On() (on []string) {
	for t := range Switches() {
		if *t.Field(p) {
			on = append(on, t.Name)
		}
	}
	return on
}
