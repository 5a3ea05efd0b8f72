package timeline

import (
	"slices"

	"btrlab/internal/study/scenario"
)

// Term is a word of a trace with a sentence about it.
type Term struct {
	Term string `json:"term"`
	Says string `json:"says"`
}

// columnTerms are the columns of the file's state, lockTerms the classes of what steps act on, and
// functionTerms the functions that steps lie in. A test holds that every scenario finds its words
// here.
var (
	columnTerms = map[string]string{
		"i_size": "the size of the file in memory; a K is 1,024 bytes",
		"dio":    "i_dio_count, the number of writers that are in the file without its lock",
		"pages":  "one letter for each page of the file in memory: " + pageLetters,
	}
	lockTerms = map[string]string{
		"i_rwsem":        "the lock of the file: writers take it alone, and share it where the policy says so",
		"i_rwsem_dir":    "the lock of a directory, for a change of names",
		"extent":         "the lock of a range of bytes of the file",
		"range_lock":     "the lock of a write's byte range, which takes the place of i_rwsem",
		"page":           "the lock of one page in memory",
		"page_state":     "the marks of a page, which change without a lock",
		"stable_page":    "the wait until the device has read a page, so that the page may change",
		"dio_wait":       "the wait until i_dio_count is 0: no writer is in the file without its lock",
		"ordered_extent": "data on its way to a place on disk; to wait for it is to wait until the trees know it",
		"workqueue_idle": "a worker that waits for work, such as the completion of a write",
		"flusher_idle":   "the task of background writeback, which waits for dirty pages",
		"io_wq":          "the requests that wait for a worker of the ring",
		"io_wq_idle":     "a worker of the ring that waits for a request",
		"uring_cqe":      "the wait for the completion of a request of the ring",
		"device":         "a transfer to or from the device",
		"fault_in":       "the page faults of the bytes that a write copies from",
		"log_mutex":      "the lock of the log of a subvolume, which fsync writes",
		"log_pin":        "keeps the log from being written while names change",
		"tree_fs":        "the lock of a block of the tree that has the files",
		"tree_csum":      "the lock of a block of the tree that has the checksums",
		"snapshot_lock":  "keeps writes in place and snapshots apart",
		"commit":         "the wait for the end of a commit",
		"stripe_hash":    "guards the table of the full stripes that a write is reading and writing: the next write of one waits in it",
		"delayed_refs":   "the changes of reference counts that a commit still has to make",
	}
	functionTerms = map[string]string{
		"planLocked":       "makes the plan of the write again, now that i_rwsem is held and i_size cannot change",
		"lockFile":         "takes the locks of the file that the plan asks for",
		"unlockFile":       "lets the locks of the file go",
		"Write":            "the beginning of a write: its plan, from what is so without a lock",
		"iSizeWrite":       "lets i_size follow a batch that ends beyond it",
		"lockExtent":       "locks the range of bytes of a batch",
		"tryExtent":        "lockExtent of a NOWAIT write, which must not sleep",
		"setDelalloc":      "marks the range as data that has no place on disk yet",
		"finishRange":      "unlocks the range of a batch, and gives back what it does not need",
		"copyFromUser":     "copies the bytes of the source into the pages",
		"checkWrite":       "the checks before the first byte: capabilities, the end of the file",
		"checkCanNocow":    "asks whether a batch can overwrite the bytes where they lie",
		"Inline":           "puts the whole of a small file into the tree",
		"Kick":             "wakes background writeback",
		"alloc":            "allocates a range without writing it",
		"rsvShrink":        "gives back the space of what a short copy did not reach",
		"reserve":          "promises space before a range or a page is locked",
		"faultIn":          "brings the bytes to copy from into memory, before any lock",
		"preparePages":     "locks the pages of a batch in ascending order and fills those that it covers in part",
		"dirtyPages":       "marks the copied pages as dirty",
		"dropPages":        "unlocks the pages of a batch",
		"dropInode":        "counts the write in i_dio_count and lets i_rwsem go",
		"relockInode":      "ends dropInode: the count goes down, and i_rwsem is taken again",
		"lockRun":          "locks dirty pages that follow each other, to write them back",
		"writeRun":         "gives locked dirty pages a place on disk and submits them",
		"writeRange":       "writes back the dirty pages of a range",
		"findDelalloc":     "looks which bytes of a run of dirty pages have no place on disk yet, with their range locked",
		"runDelalloc":      "makes ordered extents for a range that has no place on disk yet",
		"inline":           "asks whether a small file goes into the tree itself",
		"writeInline":      "puts a small file into the tree itself",
		"submit":           "starts the transfers to the device",
		"endWrite":         "the end of a transfer to the device",
		"waitPages":        "waits for pages that another task is writing back",
		"WritePages":       "writes back the dirty pages of a range of bytes",
		"WaitOrderedRange": "writes back a range and waits until the trees know where its data is",
		"FlushDelalloc":    "starts writeback to win space",
		"SyncAll":          "writes back every dirty page",
		"SyncRoot":         "writes back every dirty page of a subvolume",
		"finish":           "brings an ordered extent into the trees, and wakes those that wait for it",
		"finishItems":      "the part of finish that changes the trees",
		"Truncate":         "sets the size of the file in the order that the policy says",
		"SetSize":          "a truncate: the order of its steps is the policy's",
		"truncateSetsize":  "makes the new i_size visible and drops the pages beyond it",
		"truncatePages":    "drops the pages of a range from the cache, a batch at a time, and clears what their ranges are marked with",
		"dioWait":          "waits until no writer is in the file without its lock",
		"waitOrdered":      "waits until data beyond the new size is in the trees, so that they can be cut",
		"zeroTail":         "zeroes the rest of the page of the new end",
		"zeroOnce":         "zeroes a part of a block in memory",
		"setDiskSize":      "makes the new size that of the disk, in a transaction",
		"dropItems":        "removes the file's items beyond the new end from the trees",
		"Expand":           "zeroes what lies between the old end and the new one before the file grows",
		"Fallocate":        "reserves, punches or zeroes a range",
		"punch":            "makes a hole in the file",
		"punchesNothing":   "looks whether one hole has all of the range already",
		"punchLockRange":   "drops the pages of the hole and locks its range",
		"punchSome":        "removes a part of the hole's items from the trees",
		"lockGap":          "locks a range that is to be allocated",
		"letGo":            "ends the work on a range that was to be allocated",
		"read":             "a read through the page cache",
		"fill":             "reads pages from the device",
		"FillPage":         "reads a page from the device, because a write covers a part of it",
		"ReadPage":         "finds a page in memory, or reads it",
		"ReadSectors":      "reads from the device past the page cache",
		"readAhead":        "reads the pages after those that were asked for",
		"readRun":          "reads consecutive pages",
		"whereAhead":       "asks where the file has the bytes that are read ahead",
		"log":              "copies what has changed in the file to the log",
		"byLog":            "the fsync that writes a log and does not commit",
		"begin":            "locks the file's range for the log",
		"commitFor":        "the fsync that commits the transaction",
		"planOf":           "makes the plan of an operation",
		"lock":             "locks a range",
		"unlock":           "unlocks a range",
		"lockForCheck":     "locks a range of which the trees will be asked",
		"CheckNocow":       "asks whether a write can overwrite the bytes where they lie",
		"CanNocow":         "asks whether a write can overwrite the bytes where they lie",
		"nocowAt":          "asks the trees whether the bytes at a place may be overwritten there",
		"OverwriteNowait":  "asks for a NOWAIT write whether it can overwrite in place",
		"find":             "asks where an extent of the file lies",
	}
)

// Terms are the words of a trace that not everybody knows, each once: the columns of the state
// first, then the locks and the functions in the order of their steps.
func Terms(tr *scenario.Trace) (columns, others []Term) {
	add := func(list *[]Term, from map[string]string, word string) {
		if says, ok := from[word]; ok && !slices.ContainsFunc(*list, func(t Term) bool { return t.Term == word }) {
			*list = append(*list, Term{word, says})
		}
	}
	for _, c := range tr.Columns {
		add(&columns, columnTerms, c)
	}
	for i := range tr.Steps {
		add(&others, lockTerms, tr.Steps[i].Class)
	}
	for i := range tr.Steps {
		add(&others, functionTerms, tr.Steps[i].Where)
	}
	return columns, others
}
