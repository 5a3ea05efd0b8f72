package fs

import (
	"fmt"
	"os"
	"strings"
)

// The caches of a file system share one bound, Options.Memory. Three quarters are pages; an eighth
// is clean tree blocks, an eighth inodes. Beside them a sixteenth, and at least minDirtyMetadata,
// is for the changed tree blocks of a transaction: above it the next task that changes something
// commits first. Pages and tree blocks are evicted by their own clocks as new ones come; unused
// inodes go when there are too many, and when those that are left wait for a commit, the task that
// gave the last one back writes data and commits. Dirty pages are bounded by the dirty limit, which
// is at most half of the pages.
//
// Model: the kernel's shrinkers for one machine that has this much memory. Difference: the split is
// fixed.

// NoLimit as Options.Memory lets the caches grow.
const NoLimit = -1

const (
	maxDefaultMemory = 1 << 30
	minMemory        = 2 << 20 // below this the write path would wait for its own pages
	// an inode in memory with the tables of its pages and extents, rounded up
	bytesPerInode    = 4096
	minInodes        = 64
	minBlocks        = 64
	maxDirtyMetadata = 64 << 20
	minDirtyMetadata = 4 << 20 // below this the write path would do little else than commit
)

// DefaultMemory is the bound that fits the machine: a quarter of its memory, at most 1 GiB.
func DefaultMemory() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return maxDefaultMemory
	}
	return defaultMemory(string(b))
}

// defaultMemory is DefaultMemory by the text of /proc/meminfo.
func defaultMemory(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 && kib > 0 {
			return max(min(kib<<10/4, maxDefaultMemory), minMemory)
		}
	}
	return maxDefaultMemory
}

// bound fills the limits that Memory decides and that are not set one by one. nodeSize is the size
// of a tree block.
func (o *Options) bound(nodeSize uint32) {
	if o.Memory <= 0 {
		return
	}
	m := max(o.Memory, minMemory)
	if o.CacheLimit == 0 {
		o.CacheLimit = max(m/4*3, 2*o.DirtyLimit) // writers may fill half with dirty pages
	}
	if o.DirtyLimit == 0 {
		o.DirtyLimit = min(DefaultDirtyLimit, o.CacheLimit/2)
	}
	if o.CacheBlocks == 0 {
		o.CacheBlocks = int(min(max(m/8/int64(nodeSize), minBlocks), DefaultCacheBlocks))
	}
	if o.DirtyMetadata == 0 {
		o.DirtyMetadata = min(max(m/16, minDirtyMetadata), maxDirtyMetadata)
	}
	if o.CacheInodes == 0 {
		o.CacheInodes = int(min(max(m/8/bytesPerInode, minInodes), DefaultCacheInodes))
	}
}
