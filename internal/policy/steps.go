package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Three operations take their steps in an order that is data: one batch of a buffered write, a
// shrinking setsize, and one gap of a fallocate. The rooms that carry them out have one function
// per step and follow the plan's order. So a published change of order, a bug of the museum and a
// student's guess are all permutations, and none of them is a branch in the write path.

// NoStep ends an order that is shorter than its array.
const NoStep = 0

// WriteStep is a step of one batch of a buffered write. Models the loop body of
// __btrfs_buffered_write(); labs/reference 1.1 b to j.
type WriteStep uint8

// The steps of a batch.
const (
	FaultIn WriteStep = 1 + iota // make the source present: may lock pages of any file
	// promise data and metadata space: may wait for a flush or a commit
	Reserve
	// lock the pages, fill those that are partly overwritten, wait for writeback
	PreparePages
	// lock the extent range inside EOF, with no ordered extent in it
	LockExtent
	CopyFromUser // copy, with page faults disabled
	// the pages become uptodate and dirty; a short copy gives space back
	DirtyPages
	ISizeWrite   // i_size follows a write beyond EOF
	SetDelalloc  // the range takes the promised space over
	DropPages    // unlock the range, then the pages
	BalanceDirty // pay for the dirty pages: may sleep long
)

// MaxWriteSteps bounds the steps of a batch.
const MaxWriteSteps = 10

// WriteOrder is the order of the steps of a batch; it ends with the first NoStep.
type WriteOrder [MaxWriteSteps]WriteStep

var writeSteps = names{"policy.WriteStep",
	[]string{"none", "fault_in", "reserve", "prepare_pages", "lock_extent", "copy_from_user", "dirty_pages", "i_size_write", "set_delalloc", "drop_pages", "balance_dirty"},
	[]string{"NoStep", "FaultIn", "Reserve", "PreparePages", "LockExtent", "CopyFromUser", "DirtyPages", "ISizeWrite", "SetDelalloc", "DropPages", "BalanceDirty"}}

func (s WriteStep) String() string { return writeSteps.name(int(s)) }

// GoString is the step as code names it.
func (s WriteStep) GoString() string { return writeSteps.goName(int(s)) }

// SetsizeStep is a step of a shrinking setsize. The place of DIOWait is what seed 002's thread is
// about.
type SetsizeStep uint8

// The steps of a setsize.
const (
	// SetISize, then TruncatePages: truncate_setsize() as the kernel has it
	TruncateSetsize SetsizeStep = 1 + iota
	DIOWait                     // i_dio_count to zero
	SetISize                    // the new i_size becomes visible
	TruncatePages               // the pages beyond the new size leave the page cache
	WaitOrdered                 // ordered extents beyond i_size have finished
	TruncateItems               // file extents beyond i_size are dropped
)

// MaxSetsizeSteps bounds the steps of a setsize.
const MaxSetsizeSteps = 5

// SetsizeOrder is the order of the steps of a shrinking setsize; it ends with the first NoStep.
type SetsizeOrder [MaxSetsizeSteps]SetsizeStep

// without is the order without a step.
func (o SetsizeOrder) without(step SetsizeStep) (less SetsizeOrder) {
	n := 0
	for _, s := range o {
		if s != step {
			less[n] = s
			n++
		}
	}
	return less
}

var setsizeSteps = names{"policy.SetsizeStep",
	[]string{"none", "truncate_setsize", "dio_wait", "set_i_size", "truncate_pages", "wait_ordered", "truncate_items"},
	[]string{"NoStep", "TruncateSetsize", "DIOWait", "SetISize", "TruncatePages", "WaitOrdered", "TruncateItems"}}

func (s SetsizeStep) String() string { return setsizeSteps.name(int(s)) }

// GoString is the step as code names it.
func (s SetsizeStep) GoString() string { return setsizeSteps.goName(int(s)) }

// AllocStep is a step of a fallocate for one gap of its range.
type AllocStep uint8

// The steps of an allocation.
const (
	ReserveData AllocStep = 1 + iota // promise data space: may wait for a flush
	ReserveMeta                      // promise metadata space: may wait for a flush or a commit
	LockGap                          // lock its extent range, with no ordered extent in it
	Preallocate                      // look at the gap again, allocate, insert the item
)

// MaxAllocSteps bounds the steps of an allocation.
const MaxAllocSteps = 4

// AllocOrder is the order of the steps of an allocation.
type AllocOrder [MaxAllocSteps]AllocStep

var allocSteps = names{"policy.AllocStep",
	[]string{"none", "reserve_data", "reserve_meta", "lock_gap", "preallocate"},
	[]string{"NoStep", "ReserveData", "ReserveMeta", "LockGap", "Preallocate"}}

func (s AllocStep) String() string { return allocSteps.name(int(s)) }

// GoString is the step as code names it.
func (s AllocStep) GoString() string { return allocSteps.goName(int(s)) }

// Planned is a kind of steps whose order is a plan's: its name, and all steps that there are.
type Planned struct {
	Name  string
	Steps []string
}

// PlanSteps lists the steps that plans are made of.
func PlanSteps() []Planned {
	return []Planned{
		{"write", writeSteps.words[1:]}, {"setsize", setsizeSteps.words[1:]}, {"fallocate", allocSteps.words[1:]},
	}
}

// names are the words for the steps of one type: for people, and as code has them.
type names struct {
	typ      string
	words    []string
	packaged []string
}

func (n *names) name(i int) string {
	if i < len(n.words) {
		return n.words[i]
	}
	return n.goName(i)
}

func (n *names) goName(i int) string {
	if 0 < i && i < len(n.packaged) {
		return "policy." + n.packaged[i]
	}
	return fmt.Sprintf("%s(%d)", n.typ, i)
}

// nowaitOrder is the order of a batch of a NOWAIT write.
var nowaitOrder = WriteOrder{FaultIn, Reserve, BalanceDirty, PreparePages, LockExtent, CopyFromUser, SetDelalloc, DirtyPages, ISizeWrite, DropPages}

// writeOrder is the order of a batch under p. Of the wrong orders it knows those that are
// permutations.
func writeOrder(p *Policy) WriteOrder {
	if p.WriteSteps[0] != NoStep {
		return p.WriteSteps
	}
	var o WriteOrder
	switch {
	case p.Has(BalanceOutside):
		o = WriteOrder{FaultIn, Reserve, PreparePages, LockExtent, CopyFromUser, SetDelalloc, DirtyPages, ISizeWrite, DropPages}
	case p.Has(BalanceBeforeFolio):
		o = WriteOrder{FaultIn, Reserve, BalanceDirty, PreparePages, LockExtent, CopyFromUser, SetDelalloc, DirtyPages, ISizeWrite, DropPages}
	default:
		o = WriteOrder{FaultIn, Reserve, PreparePages, LockExtent, CopyFromUser, SetDelalloc, DirtyPages, ISizeWrite, DropPages, BalanceDirty}
	}
	if p.Wrong(WrongFaultUnderPageLock) {
		move(o[:], FaultIn, LockExtent)
	}
	if p.Wrong(WrongExtentBeforePage) {
		move(o[:], PreparePages, LockExtent)
	}
	if p.Wrong(WrongISizeAfterUnlock) {
		move(o[:], ISizeWrite, DropPages)
	}
	return o
}

func setsizeOrder(p *Policy) SetsizeOrder {
	switch {
	case p.SetsizeSteps[0] != NoStep:
		return p.SetsizeSteps
	case p.Has(SetsizeDrainFirst):
		return SetsizeOrder{DIOWait, TruncateSetsize, WaitOrdered, TruncateItems}
	}
	return SetsizeOrder{TruncateSetsize, DIOWait, WaitOrdered, TruncateItems}
}

// holdsReads reports whether direct reads go without i_rwsem and may come between the wait of a
// setsize and its i_size.
func holdsReads(p *Policy) bool {
	for _, s := range setsizeOrder(p) {
		switch s {
		case DIOWait:
			return !p.Has(DIOShared)
		case TruncateSetsize, SetISize:
			return false
		}
	}
	return false
}

func allocOrder(p *Policy) AllocOrder {
	if p.Wrong(WrongReserveUnderRange) {
		return AllocOrder{ReserveMeta, LockGap, ReserveData, Preallocate}
	}
	return AllocOrder{ReserveData, ReserveMeta, LockGap, Preallocate}
}

// move puts step, which is earlier than after in o, right after it.
func move[S comparable](o []S, step, after S) {
	for i := 0; i+1 < len(o); i++ {
		if o[i] == step {
			o[i], o[i+1] = o[i+1], step
			if o[i] == after {
				return
			}
		}
	}
}

// CheckWriteOrder rejects an order of the steps of a batch that is wrong on sight: too long,
// unknown, repeated or missing steps.
func CheckWriteOrder(steps []WriteStep) error {
	return checkOrder(steps, FaultIn, Reserve, PreparePages, LockExtent, CopyFromUser, DirtyPages, ISizeWrite, SetDelalloc, DropPages, BalanceDirty)
}

// CheckSetsizeOrder is CheckWriteOrder for a setsize. It wants the two halves of TruncateSetsize,
// not the whole.
func CheckSetsizeOrder(steps []SetsizeStep) error {
	return checkOrder(steps, DIOWait, SetISize, TruncatePages, WaitOrdered, TruncateItems)
}

// checkOrder rejects steps that are not a permutation of want.
func checkOrder[S interface {
	comparable
	fmt.GoStringer
}](steps []S, want ...S) error {
	if len(steps) > len(want) {
		return fmt.Errorf("have %d steps, want at most %d", len(steps), len(want))
	}
	var all []string
	for _, s := range want {
		all = append(all, s.GoString())
	}
	seen := map[S]bool{}
	for i, s := range steps {
		if !slices.Contains(want, s) {
			return fmt.Errorf("bad step %d, have %#v want one of %s", i+1, s, strings.Join(all, ", "))
		}
		if seen[s] {
			return fmt.Errorf("%#v comes twice", s)
		}
		seen[s] = true
	}
	for _, s := range want {
		if !seen[s] {
			return fmt.Errorf("%#v is missing", s)
		}
	}
	return nil
}
