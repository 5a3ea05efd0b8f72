package fs

import (
	"time"

	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/policy"
)

// Options says how to open an image.
type Options struct {
	// ReadOnly opens without writing a byte; an image with a log tree can only be opened so.
	ReadOnly bool
	// Degraded takes a list of devices that is not complete: what no device has and no parity makes
	// is EIO, and it is written where every profile bears the loss. The mount option degraded.
	Degraded bool
	// Discard gives the place of what a commit has freed back to the devices, where they can take
	// it: holes in an image file. The mount option discard=sync.
	Discard bool
	// Subvol is the subvolume in which paths begin: 0 is the image's default one, as for a mount
	// without an option, and format.FS_TREE_OBJECTID the top level, which has all others. With
	// SubvolPath it is the one at that path from the top level.
	Subvol     uint64
	SubvolPath string
	// Policy is the locking policy of the write path; nil is policy "locked".
	Policy *policy.Policy
	// DirtyBackground and DirtyLimit are bytes of dirty page cache: above the first the flusher
	// starts, at the second writers are throttled. Zero takes the default.
	DirtyBackground, DirtyLimit int64
	// Memory bounds the caches together, in bytes: the limits below that are zero follow from it.
	// Zero takes DefaultMemory under the real runtime and NoLimit under a simulated one, whose
	// results must not depend on the machine.
	Memory int64
	// CacheLimit is the bytes of page cache above which clean pages are dropped; zero is no limit,
	// or follows from Memory.
	CacheLimit int64
	// NoPayload keeps no file data: what was written to a file cannot be read back. Metadata is
	// real, and a memory device has one version of a log's blocks. It is for experiments in virtual
	// time on files larger than memory.
	NoPayload bool
	// CacheInodes is the number of inodes in memory above which unused ones are dropped; zero takes
	// the default.
	CacheInodes int
	// EndioWorkers is the number of tasks that finish ordered extents; zero takes the default.
	EndioWorkers int
	// EndioNewest lets them finish the ordered extent that was queued last first. It is for
	// studies: Linux's queue is a FIFO.
	EndioNewest bool
	// CacheBlocks is the number of clean tree blocks kept; zero takes ctree's default. A small one
	// makes Open cheap.
	CacheBlocks int
	// NewNode, if set, makes the memory of tree blocks: size bytes that are 0. It is called by many
	// tasks at once.
	NewNode func(size int) format.Node
	// DirtyMetadata is the bytes of changed tree blocks above which a commit begins; zero is no
	// limit, or follows from Memory.
	DirtyMetadata int64
	// CommitInterval is the age at which a task of the file system commits a transaction, in the
	// runtime's time; zero is never. The mount option commit; Linux has DefaultCommitInterval.
	CommitInterval time.Duration
	// FirstFit allocates from the start of every block group: what was freed too early is used
	// again at once. Tests set it.
	FirstFit bool
	// BadCopy, if set, is told of a tree block or a sector that was bad on one mirror, and was read
	// from another. Many tasks call it at once.
	BadCopy func(err error)
	// LostCopy, if set, is told of a spare superblock that a commit could not write. Calls come
	// from any task, and must not sleep.
	LostCopy func(err error)
	// Now gives inodes their time stamps; nil is the clock.
	Now func() time.Time
	// Lab has a lab's functions in the write path.
	Lab iopath.Lab
	// UID and GID own what is created.
	UID, GID uint32
	// CheckQuiescence makes Close panic when a counter is not at rest: reservations, outstanding
	// extents, delalloc bytes, locked ranges. Tests set it.
	CheckQuiescence bool
}

// Defaults of Options.
const (
	DefaultDirtyBackground = 64 << 20
	DefaultDirtyLimit      = 128 << 20
	DefaultEndioWorkers    = 2
	DefaultCacheInodes     = 32768
	DefaultCacheBlocks     = 16384
	DefaultCommitInterval  = 30 * time.Second
)

// OpenFlags says how OpenFile opens; the names are those of open(2).
type OpenFlags uint32

// The flags. Without O_RDWR a file is open for reading only.
const (
	O_RDONLY   OpenFlags = 0
	O_RDWR     OpenFlags = 1 << iota
	O_CREAT              // create the file when there is none
	O_EXCL               // with O_CREAT: EEXIST when there is one
	O_TRUNC              // set the size to zero
	O_NOFOLLOW           // a symbolic link is opened itself: ELOOP
	O_APPEND             // every write goes to the end of the file
	O_DIRECT             // reads and writes past the page cache
	O_DSYNC              // every write is durable when it returns, as if fdatasync came after it
	O_SYNC               // the same with fsync, which is the same in btrfs: see File.Fdatasync
)

// Fallocate modes, as in linux/falloc.h.
const (
	FALLOC_FL_KEEP_SIZE  = 0x01
	FALLOC_FL_PUNCH_HOLE = 0x02
	FALLOC_FL_ZERO_RANGE = 0x10
)

// Statfs is the space accounting of the whole file system, in bytes.
type Statfs struct {
	Total, Used, Free                    uint64
	DataTotal, DataUsed                  uint64
	MetadataTotal, MetadataUsed          uint64 // logical: DUP counts once
	SystemTotal, SystemUsed              uint64
	DataMayUse, MetadataMayUse           uint64
	DataPinned, MetadataPinned           uint64
	DataReserved, MetadataReserved       uint64
	Unallocated                          uint64 // device bytes in no chunk
	Generation                           uint64
	Label                                string
	FSID                                 format.UUID
	NodeSize, SectorSize                 uint32
	Files                                uint64 // inodes in memory
	DirtyBytes, WritebackBytes, CacheLen int64
	// bytes of tree blocks that the running transaction has changed
	DirtyMetadata int64
}
