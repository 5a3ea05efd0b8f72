package kiocb

import "btrlab/internal/errno"

// Again is the EAGAIN of a NOWAIT request: it names the step that would have slept, and what for.
// errors.Is finds EAGAIN in it. Each value is returned for one reason, and being one byte it costs
// no allocation as an error.
//
// Model: the places at which the kernel answers EAGAIN under IOCB_NOWAIT; labs/reference 4.1.
// Difference: the kernel's EAGAIN does not say which it was.
type Again uint8

// The answers, in the order of a request's steps.
const (
	_              Again = iota
	AgainInode           // i_rwsem
	AgainRangeLock       // the byte range of a policy with WRITE_RANGE_LOCK
	AgainMustCOW         // a COW inode, before any step
	AgainPrivs           // capabilities of the file, which may have to go
	AgainExpand          // growth: a block must be zeroed
	AgainGrow            // growth: the range beyond the end of file
	AgainFault           // a page fault of the source
	AgainData            // data space
	AgainNocow           // the range of the question whether the blocks may be overwritten
	AgainMetadata        // metadata space
	AgainQuota           // space of a quota group
	AgainThrottle        // too much is dirty
	AgainPage            // a page lock
	AgainRead            // a page that must be read first
	AgainStable          // a page under writeback
	AgainExtent          // the extent range
	AgainOrdered         // an ordered extent in the range
	AgainCached          // a buffered read: the page is not in memory
	AgainTree            // the lock of a tree block
	AgainTreeRead        // a tree block that is not in memory
	AgainRefs            // the delayed references of an extent
	AgainEOF             // a direct write that ends beyond the end of file
	AgainInMemory        // a direct request: a page of the range is in memory
	AgainContext         // the memory of a direct request
	AgainDirty           // a page of the range became dirty
	AgainCameIn          // a page came into the locked range
	AgainExtents         // a direct request of several extents
	AgainCOW             // blocks that cannot be overwritten in place
	AgainSnapshot        // a snapshot of the subvolume
	AgainFlush           // a direct read: dirty pages
	AgainBuffered        // a direct request that must go through the page cache
	AgainDirect          // direct writes of sectors in flight
	AgainCopy            // a direct write with checksums: the copy of its bytes
	Agains               // how many there are
)

// againWords are the place and the reason of each.
var againWords = [Agains][2]string{
	AgainInode:     {"lock_inode", "another task has i_rwsem"},
	AgainRangeLock: {"lock_inode", "byte ranges have no try-lock"},
	AgainMustCOW:   {"write_check", "the inode is neither NOCOW nor preallocated"},
	AgainPrivs:     {"remove_privs", "the file may have capabilities, which must go"},
	AgainExpand:    {"expand", "the block at the old end of file must be zeroed"},
	AgainGrow:      {"expand", "the range after the old end of file is busy"},
	AgainFault:     {"fault_in", "the source is not in memory"},
	AgainData:      {"reserve", "no data space without a flush"},
	AgainNocow:     {"nocow_check", "the range is busy while its extents are asked"},
	AgainMetadata:  {"reserve", "no metadata space without a flush"},
	AgainQuota:     {"reserve", "the quota is used up unless a flush helps"},
	AgainThrottle:  {"balance_dirty", "too much is dirty"},
	AgainPage:      {"prepare_pages", "another task has the page locked"},
	AgainRead:      {"prepare_pages", "a page is overwritten in part and not in memory"},
	AgainStable:    {"prepare_pages", "the page is under writeback"},
	AgainExtent:    {"lock_extent", "another task has the range locked"},
	AgainOrdered:   {"lock_extent", "an ordered extent is in the range"},
	AgainCached:    {"read", "the page is not in memory"},
	AgainTree:      {"tree", "another task has a tree block locked"},
	AgainTreeRead:  {"tree", "a tree block is not in memory"},
	AgainRefs:      {"delayed_refs", "another task has the delayed references locked"},
	AgainEOF:       {"write_check", "the write ends beyond the end of file"},
	AgainInMemory:  {"invalidate", "a page of the range is in memory"},
	AgainContext:   {"allocate", "no memory without reclaim"},
	AgainDirty:     {"async_extents", "a page of the range became dirty meanwhile"},
	AgainCameIn:    {"lock_extent", "a page of the range came into memory meanwhile"},
	AgainExtents:   {"place", "the request is of several extents"},
	AgainCOW:       {"place", "the blocks cannot be overwritten in place"},
	AgainSnapshot:  {"reserve", "another task makes a snapshot"},
	AgainFlush:     {"flush", "a page of the range is dirty"},
	AgainBuffered:  {"fallback", "the request must go through the page cache"},
	AgainDirect:    {"drain", "direct writes of sectors are in flight"},
	AgainCopy:      {"allocate", "the copy that goes to the device needs memory"},
}

// Place is the step that would have slept, by its name in traces.
func (a Again) Place() string { return againWords[a%Agains][0] }

// Reason names the step that would have slept.
func (a Again) Reason() string { return againWords[a%Agains][1] }

// Error gives "resource temporarily unavailable at prepare_pages: the page is under writeback".
func (a Again) Error() string {
	return errno.EAGAIN.Error() + " at " + a.Place() + ": " + a.Reason()
}

// Is says that every Again is EAGAIN.
func (a Again) Is(target error) bool { return target == error(errno.EAGAIN) }
