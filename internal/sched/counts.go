package sched

// Counter is one of the costs of a request that do not show as time: what the patches of seed 000
// removed.
type Counter uint8

// The counters.
const (
	CountSearches Counter = iota // descents from the root of a tree
	CountPaths                   // paths taken from the free list, or allocated
	CountLeafHeld                // steps done with a leaf locked that need nothing of it
	CountMayBlock                // steps of a NOWAIT request that sleep if what they want is busy
	// Those of CountMayBlock that a patch of the seed took away: D0, D1, D6, D7.
	CountPageFlush    // pages of the range are written back
	CountRangeWait    // the range is waited for
	CountMemoryWait   // memory is waited for
	CountReserveFlush // metadata is reserved with flushes
	// Those of CountPaths that one did: D3, D4.
	CountOwnPath  // a path for the search of other references
	CountKeptPath // a path more while the first one is kept
	Counters      // how many there are
)

var counterNames = [Counters]string{"tree_searches", "path_allocations", "leaf_held_steps", "blocking_points",
	"page_flushes", "range_waits", "memory_waits", "reserve_flushes", "own_paths", "kept_paths"}

func (c Counter) String() string { return counterNames[c] }

// Counts are the costs of a task's requests. A task counts for whoever sets Task.Counts, and does
// nothing otherwise.
type Counts struct {
	N [Counters]int64
	// Tried counts the requests that were NOWAIT.
	Tried int64
	// Again counts the answers to NOWAIT requests that would have slept, by kiocb.Again.
	Again [32]int64
	// InodeNs is how long the task had an i_rwsem for writing, and Inodes how often, if TimeInodes
	// is set: that takes two readings of the clock each time.
	InodeNs, Inodes int64
	TimeInodes      bool
	inodeFrom       int64 // when it got the one that it has
	// Log has the costs of the task's fsyncs in the trees of logs.
	Log LogCounts
}

// LogCounter is one of the costs of an fsync in the tree of a log: what the patches of seed 003
// removed.
type LogCounter uint8

// The counters of logs.
const (
	LogFsyncs   LogCounter = iota // fsyncs that went to a log
	LogSearches                   // descents from the root of the tree
	LogCOWed                      // leaves copied before a change
	LogShifted                    // bytes that a change of a leaf moved in it or to its neighbour
	LogRechecks                   // free space of a leaf asked for again
	LogSums                       // item sizes added up for a deletion
	// leaves that a deletion made so small that they were to be emptied
	LogSmall
	LogEmptied  // of these, those whose items went to the neighbours
	LogReleases // releases of the path that logs extents
	LogBlocks   // tree blocks written
	LogSupers   // superblocks written
	LogBytes    // bytes of both
	LogCounters // how many there are
)

var logCounterNames = [LogCounters]string{"fsyncs", "tree_searches", "leaves_cowed", "bytes_shifted", "free_space_rechecks", "sizes_summed",
	"leaves_small", "leaves_emptied", "path_releases", "log_blocks", "superblocks", "log_bytes"}

func (c LogCounter) String() string { return logCounterNames[c] }

// LogLevels is how many levels a tree may have.
const LogLevels = 8

// LogCounts are the costs of a task's fsyncs in the trees of logs.
type LogCounts struct {
	N [LogCounters]int64
	// Steps counts, by level, what was done while the path had the write lock of a block of that
	// level: a block searched, an item inserted or deleted, a field of an item written, a free
	// space or a size looked up.
	Steps [LogLevels]int64
	// HeldNs is how long the path had these locks; of one that is held it has the start, negative.
	HeldNs [LogLevels]int64
}

// CountLog adds n to a counter of logs.
func (t *Task) CountLog(c LogCounter, n int) {
	if t.Counts != nil {
		t.Counts.Log.N[c] += int64(n)
	}
}

// Add adds o.
func (c *Counts) Add(o *Counts) {
	c.Tried += o.Tried
	c.InodeNs, c.Inodes = c.InodeNs+o.InodeNs, c.Inodes+o.Inodes
	for i := range c.N {
		c.N[i] += o.N[i]
	}
	for i := range c.Again {
		c.Again[i] += o.Again[i]
	}
	for i := range c.Log.N {
		c.Log.N[i] += o.Log.N[i]
	}
	for i := range c.Log.Steps {
		c.Log.Steps[i] += o.Log.Steps[i]
		c.Log.HeldNs[i] += o.Log.HeldNs[i]
	}
}

// Punts is the number of answers in Again.
func (c *Counts) Punts() (n int64) {
	for _, v := range c.Again {
		n += v
	}
	return n
}

// Count counts c once.
func (t *Task) Count(c Counter) {
	if t.Counts != nil {
		t.Counts.N[c]++
	}
}

// CountInode notes that the task has an i_rwsem for writing from now on, or no longer. Of two that
// it has at one time the later is counted.
func (t *Task) CountInode(has bool) {
	if c := t.Counts; c != nil && c.TimeInodes {
		c.inode(t.Now(), has)
	}
}

func (c *Counts) inode(now int64, has bool) {
	if has {
		c.inodeFrom = now
		return
	}
	c.InodeNs += now - c.inodeFrom
	c.Inodes++
}

// CountTried counts a NOWAIT request.
func (t *Task) CountTried() {
	if t.Counts != nil {
		t.Counts.Tried++
	}
}
