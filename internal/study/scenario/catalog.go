package scenario

import (
	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

const k = 1024

// inodeClasses are the locks that guard a file from other operations on it.
var inodeClasses = []string{"i_rwsem", "dio_wait", "range_lock", "page", "extent"}

// rangeClasses leave out the pages, whose locks are taken in batches: what matters is between the
// batches.
var rangeClasses = []string{"i_rwsem", "dio_wait", "range_lock", "extent", "fault_in"}

// joinClasses are the locks of whole operations: a task is switched where it begins, where it ends,
// and at the locks of the policy (under), and never while it copies. Four operations of three tasks
// have few schedules so.
var joinClasses = []string{"i_rwsem", "dio_wait", "range_lock"}

// deviceClasses are the classes that writeback and its completion wait for.
var deviceClasses = []string{"i_rwsem", "page", "stable_page", "extent", "ordered_extent", "device"}

// dataClasses are the locks and waits of a file's data.
var dataClasses = []string{"i_rwsem", "page", "stable_page", "extent", "ordered_extent", "device"}

// directClasses are the classes that a direct write, and the tasks that it meets, take and wait
// for.
var directClasses = []string{"i_rwsem", "dio_wait", "range_lock", "page", "dio_locked", "extent", "ordered_extent", "device"}

// extentClasses leave out what lies inside an extent's turn.
var extentClasses = []string{"i_rwsem", "range_lock", "dio_locked", "extent", "ordered_extent"}

// stampClasses are for an fsync beside a commit: in the tree lies the window between an inode that
// is not dirty any more and its item.
var stampClasses = []string{"i_rwsem", "extent", "ordered_extent", "tree_fs"}

// ringClasses are the classes that the requests of a ring wait for, among them its workers' lists.
var ringClasses = []string{"i_rwsem", "page", "extent", "io_wq"}

// sourceClasses are for one task alone.
var sourceClasses = []string{"i_rwsem", "extent", "ordered_extent"}

// unalignedClasses are the classes that direct writes of sectors wait for, and the device between
// them.
var unalignedClasses = []string{"i_rwsem", "dio_wait", "extent", "ordered_extent", "device"}

// sectorRule leaves sizes alone: the file has its size without a byte written.
var sectorRule = oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesOff}

// calls is POSIX: writes whole, the size with them, reads page by page as Linux has it.
var calls = oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesWith}

// unit is the bytes of a full stripe on one device.
const unit = 64 * k

// big is a write of two batches.
const big = 36 * k

func all(n int64) []oracle.Range { return []oracle.Range{{Lo: 0, Hi: n}} }

func writers(a, b Op) []Task { return []Task{{"writer A", []Op{a}}, {"writer B", []Op{b}}} }

func writerAnd(w Op, name string, ops ...Op) []Task {
	return []Task{{"writer", []Op{w}}, {name, ops}}
}

// three are writers of a page each, of which the third goes on with another operation: what a
// policy remembers of two writers may be undone by a third.
func three(then Op) []Task {
	return []Task{{"writer A", []Op{Write(4*k, 4*k)}}, {"writer B", []Op{Write(8*k, 4*k)}}, {"writer C", []Op{Write(12*k, 4*k), then}}}
}

// nowaitBuffered are the presets that have buffered writes with NOWAIT.
var nowaitBuffered = []string{"nowait-6.1", "nowait-strict"}

// catalog is the scenarios.
var catalog = []*Scenario{
	{
		Name:  "truncate-race",
		About: "a writer inside EOF and a truncate below it: the lost truncate of seed 002",
		Goal:  "make the truncate get lost",
		File:  File{Size: 16 * k, Cached: all(16 * k)}, Tasks: writerAnd(Write(8*k, 8*k), "truncate", Truncate(4*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "truncate-into",
		About: "a writer and a truncate into the middle of its range, inside a page",
		Goal:  "leave bytes beyond the new end of the file",
		File:  File{Size: 12 * k, Cached: all(12 * k)}, Tasks: writerAnd(Write(4*k, 8*k), "truncate", Truncate(6*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "truncate-above",
		About: "a writer and a truncate that cuts only what is beyond its range",
		File:  File{Size: 16 * k, Cached: all(16 * k)}, Tasks: writerAnd(Write(4*k, 4*k), "truncate", Truncate(10*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "truncate-grow",
		About: "a writer inside EOF and a truncate that makes the file longer, from the middle of a page",
		File:  File{Size: 6 * k, Cached: all(6 * k)}, Tasks: writerAnd(Write(2*k, 4*k), "truncate", Truncate(12*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "two-writers-truncate",
		About: "two writers inside EOF and a truncate below both",
		Goal:  "make the truncate get lost although one writer was waited for",
		File:  File{Size: 12 * k, Cached: all(12 * k)},
		Tasks: []Task{{"writer A", []Op{Write(4*k, 4*k)}}, {"writer B", []Op{Write(8*k, 4*k)}}, {"truncate", []Op{Truncate(2 * k)}}},
		// Pages are left out: the writers have none in common, and the truncate has all.
		Switch: rangeClasses, Rule: calls,
	},
	{
		Name:   "truncate-rewrite",
		About:  "two writers of one block inside EOF, who write it back, and a truncate below both: Linux panics when a block gets a second ordered extent",
		Goal:   "give one block two ordered extents",
		File:   File{Size: 8 * k},
		Tasks:  []Task{{"writer A", []Op{Write(4*k, 4*k), Flush()}}, {"writer B", []Op{Write(4*k, 4*k), Flush()}}, {"truncate", []Op{Truncate(0)}}},
		Switch: []string{"i_rwsem", "dio_wait", "extent", "ordered_extent", "workqueue_idle"}, Rule: calls, Preemptions: 1,
	},
	{
		Name:  "two-writers-same",
		About: "two writes of two batches to the same range: Hellwig's interleaving",
		Goal:  "end with the first batch of one and the second of the other",
		File:  File{Size: big}, Tasks: writers(Write(0, big), Write(0, big)),
		Switch: rangeClasses, Rule: calls,
	},
	{
		Name:  "two-writers-nested",
		About: "a write of two batches around another",
		File:  File{Size: big + 8*k}, Tasks: writers(Write(0, big+8*k), Write(28*k, 8*k)),
		Switch: rangeClasses, Rule: calls,
	},
	{
		Name:  "two-writers-overlap",
		About: "two writes of two batches that overlap in part",
		File:  File{Size: big + 16*k}, Tasks: writers(Write(0, big), Write(16*k, big)),
		Switch: rangeClasses, Rule: calls,
	},
	{
		Name:  "two-writers-disjoint",
		About: "two writes of different pages",
		File:  File{Size: 16 * k, Cached: all(16 * k)}, Tasks: writers(Write(0, 8*k), Write(8*k, 8*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "two-writers-page",
		About: "two writes that meet in the middle of a page",
		File:  File{Size: 8 * k}, Tasks: writers(Write(0, 5*k), Write(5*k, 3*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "two-writers-eof",
		About: "two writes that begin inside EOF and end beyond it",
		File:  File{Size: 6 * k, Cached: all(6 * k)}, Tasks: writers(Write(4*k, 8*k), Write(4*k, 6*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "writer-eof-inside",
		About: "a write that extends the file and one that ends inside EOF",
		File:  File{Size: 8 * k, Cached: all(8 * k)}, Tasks: writers(Write(6*k, 6*k), Write(2*k, 6*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "two-writers-extend",
		About: "a write of two batches that extends the file and one inside EOF across its batches",
		Goal:  "put a whole write between the batches of one that has the inode lock",
		File:  File{Size: big}, Tasks: writers(Write(0, big+8*k), Write(28*k, 8*k)),
		Switch: rangeClasses, Rule: calls,
	},
	{
		Name:  "three-truncate",
		About: "three writers inside EOF, of which the third cuts the file below the others when it has written",
		Goal:  "let the third end what two writers had together, and cut the file while one of them still copies",
		File:  File{Size: 16 * k, Cached: all(16 * k)}, Tasks: three(Truncate(2 * k)),
		Switch: joinClasses, Rule: calls, Preemptions: 2,
	},
	{
		Name:  "three-inside",
		About: "three writers inside EOF, of which the third cuts the file in the middle of another's page when it has written",
		Goal:  "leave bytes beyond the new end of the file",
		File:  File{Size: 16 * k, Cached: all(16 * k)}, Tasks: three(Truncate(10 * k)),
		Switch: joinClasses, Rule: calls, Preemptions: 2,
	},
	{
		Name:   "three-overlap",
		About:  "three writes of two batches to ranges that overlap in a chain: the first meets the second, which meets the third",
		Goal:   "end with a mix although each pair alone is kept apart",
		File:   File{Size: 2*big + 8*k},
		Tasks:  []Task{{"writer A", []Op{Write(0, big)}}, {"writer B", []Op{Write(28*k, big)}}, {"writer C", []Op{Write(56*k, 24*k)}}},
		Switch: []string{"i_rwsem", "range_lock", "fault_in"}, Rule: calls, Preemptions: 2,
	},
	{
		Name:  "writer-punch",
		About: "a writer inside EOF and a hole punched over its range",
		Goal:  "leave half of the write in the hole",
		File:  File{Size: 16 * k, Cached: all(16 * k)}, Tasks: writerAnd(Write(4*k, 8*k), "punch", Punch(4*k, 8*k)),
		Switch: inodeClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "long-write-punch",
		About: "a write of two batches inside EOF and a hole punched across them: nothing makes a punch wait for unlocked writers",
		Goal:  "punch the first batch and keep the second",
		File:  File{Size: big + 8*k}, Tasks: writerAnd(Write(0, big+8*k), "punch", Punch(28*k, 8*k)),
		Switch: rangeClasses, Rule: calls,
	},
	{
		Name:  "long-write-truncate",
		About: "a write of two batches inside EOF and a truncate between them",
		Goal:  "make the truncate get lost although half of the write was there before it",
		File:  File{Size: big + 8*k}, Tasks: writerAnd(Write(0, big+8*k), "truncate", Truncate(30*k)),
		Switch: rangeClasses, Rule: calls,
	},
	{
		Name:  "writer-fallocate",
		About: "a writer inside EOF and an allocation that reaches beyond EOF",
		File:  File{Size: 8 * k, Cached: all(8 * k)}, Tasks: writerAnd(Write(4*k, 4*k), "fallocate", Fallocate(4*k, 12*k)),
		Switch: inodeClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "writer-reader",
		About: "a writer of two pages and a reader of both, page by page",
		File:  File{Size: 8 * k, Cached: all(8 * k)}, Tasks: writerAnd(Write(0, 8*k), "reader", Read(0, 8*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "stable-pages",
		About: "a rewrite of a page while the device reads it: checksum and bytes must fit",
		Goal:  "change a page between its checksum and the device",
		File:  File{Size: 4 * k, Dirty: all(4 * k)}, Tasks: writerAnd(Write(0, 4*k), "writeback", Flush()),
		Switch: deviceClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "ordered-retry",
		About: "a writer that finds an ordered extent in its range lets all go, waits and tries again",
		File:  File{Size: 8 * k, Dirty: all(8 * k)}, Tasks: writerAnd(Write(0, 8*k), "writeback", Flush()),
		Switch: append([]string{"workqueue_idle"}, deviceClasses...), Rule: calls, Deep: true,
	},
	{
		Name:   "fsync-writer",
		About:  "an fsync with a writer of the same pages, and another fsync",
		File:   File{Size: 8 * k, Cached: all(8 * k)},
		Tasks:  []Task{{"writer", []Op{Write(0, 4*k), Fsync()}}, {"fsync", []Op{Write(4*k, 4*k), Fsync()}}},
		Switch: []string{"i_rwsem", "page", "extent", "ordered_extent"}, Rule: calls, Deep: true, Preemptions: 2,
	},
	{
		Name:   "fsync-writeback",
		About:  "an fsync while background writeback has the page in hand: what it promised must be on the device",
		Goal:   "let fsync return before the data is on the device",
		File:   File{Size: 4 * k, Cached: all(4 * k)},
		Tasks:  []Task{{"writer", []Op{Write(0, 4*k), Fsync()}}, {"writeback", []Op{Flush()}}},
		Switch: []string{"i_rwsem", "page", "extent", "ordered_extent"}, Rule: calls, Deep: true,
	},
	{
		Name:   "page-state-fsync",
		About:  "an fsync between the atomics of a page that background writeback takes in hand",
		Goal:   "let fsync see a page that is neither dirty nor under writeback",
		File:   File{Size: 4 * k, Cached: all(4 * k)},
		Tasks:  []Task{{"writer", []Op{Write(0, 4*k), Fsync()}}, {"writeback", []Op{Flush()}}},
		Switch: []string{"page_state"}, Rule: calls, Deep: true, Preemptions: 3, Prove: true,
	},
	{
		Name:  "page-state-wait",
		About: "a writer that waits for a page's writeback, whose end is a tag, a count, a flag and a wake-up",
		Goal:  "sleep through the end of writeback",
		File:  File{Size: 4 * k, Dirty: all(4 * k)}, Tasks: writerAnd(Write(0, 4*k), "writeback", Flush()),
		Switch: []string{"page", "page_state", "stable_page", "device"}, Rule: calls, Deep: true,
	},
	{
		Name:  "enospc",
		About: "two writers with space for one: a write ends in the middle, nothing leaks",
		File:  File{Size: 4 * k}, FillTo: 48 * k,
		Tasks:  []Task{{"writer A", []Op{may(Write(8*k, big))}}, {"writer B", []Op{may(Write(64*k, big))}}},
		Switch: []string{"i_rwsem", "space_ticket", "extent"}, Rule: oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesApart}, Deep: true, Preemptions: 4, Prove: true, TooMany: []string{"modern"},
	},
	{
		Name:  "balance-dirty",
		About: "writers over the dirty limit, throttled with and without the inode lock, and the flusher",
		Goal:  "let every task wait for another",
		File:  File{Size: 64 * k}, DirtyLimit: 64 * k,
		Tasks:  writers(Write(0, big), Write(28*k, big)),
		Switch: []string{"i_rwsem", "balance_dirty", "flusher_idle", "ordered_extent"},
		Rule:   oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesWith}, Deep: true, Preemptions: 3, Prove: true, TooMany: []string{"prewait"},
	},
	{
		Name:  "truncate-writeback",
		About: "a truncate into a dirty page while the file is being written back, and an ordered extent across the new end",
		File:  File{Size: 12 * k, Dirty: all(12 * k)}, Tasks: []Task{{"truncate", []Op{Truncate(6 * k)}}, {"writeback", []Op{Flush()}}},
		Switch: dataClasses, Rule: calls, Deep: true, Preemptions: 3,
	},
	{
		Name:  "punch-writeback",
		About: "a hole punched into dirty pages while they are being written back",
		File:  File{Size: 12 * k, Dirty: all(12 * k)}, Tasks: []Task{{"punch", []Op{Punch(2*k, 8*k)}}, {"writeback", []Op{Flush()}}},
		Switch: dataClasses, Rule: calls, Deep: true, Preemptions: 3,
	},
	{
		Name:  "grow-writeback",
		About: "a file that is cut and grown again while it is being written back: the gap reads as zeroes",
		File:  File{Size: 8 * k, Dirty: all(8 * k)}, Tasks: []Task{{"truncate", []Op{Truncate(2 * k), Truncate(8 * k)}}, {"writeback", []Op{Flush()}}},
		Switch: dataClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "nocow-rewrite",
		About: "a NOCOW file rewritten in place while it is being written back",
		File:  File{Size: 8 * k, Nocow: true, Dirty: all(8 * k)}, Tasks: writerAnd(Write(0, 8*k), "writeback", Flush()),
		Switch: dataClasses, Rule: calls, Deep: true,
	},
	{
		Name:   "nocow-fsync",
		About:  "a NOCOW file rewritten in place and synced, while a sync of the file system commits its time stamps",
		Goal:   "let fsync return before the data is out of the device's cache",
		File:   File{Size: 4 * k, Nocow: true, Cached: all(4 * k)},
		Tasks:  []Task{{"writer", []Op{Write(0, 4*k), Fsync()}}, {"sync", []Op{Sync()}}},
		Switch: append([]string{"page"}, stampClasses...), Rule: calls, Deep: true, Preemptions: 3, Prove: true,
	},
	{
		Name:  "nocow-snapshot",
		About: "no data space is left: a NOCOW file is overwritten in place, and a snapshot is made of it",
		Goal:  "let a write that needs no space be the one that needs it",
		File:  File{Size: 8 * k, Nocow: true, Cached: all(8 * k)}, FillTo: 4 * k,
		Tasks:  []Task{{"writer", []Op{may(Write(0, 8*k)), Fsync()}}, {"snapshot", []Op{Snapshot()}}},
		Switch: []string{"snapshot_lock", "page", "extent"}, Rule: oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesWith}, Deep: true, Preemptions: 2, Prove: true, TooMany: []string{"modern"},
	},
	{
		Name:   "snapshot-writeback",
		About:  "a NOCOW file is being written back while a snapshot is made of it",
		Goal:   "change the snapshot after it was made",
		File:   File{Size: 4 * k, Nocow: true, Cached: all(4 * k)},
		Tasks:  []Task{{"writer", []Op{Write(0, 4*k), Flush()}}, {"snapshot", []Op{Snapshot()}}},
		Switch: []string{"snapshot_lock", "i_rwsem_dir", "extent"}, Rule: calls, Deep: true, Preemptions: 2,
	},
	{
		Name:  "prealloc-punch",
		About: "a write into preallocated space and a hole punched beside it",
		File:  File{Size: 4 * k, Prealloc: 16 * k}, Tasks: writerAnd(Write(4*k, 4*k), "punch", Punch(8*k, 8*k)),
		Switch: dataClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "reader-writeback",
		About: "a reader of a file that is written back and leaves memory meanwhile",
		File:  File{Size: 8 * k, Dirty: all(8 * k)}, Tasks: []Task{{"reader", []Op{Read(0, 8*k)}}, {"writeback", []Op{Flush(), Drop()}}},
		Switch: dataClasses, Rule: calls, Deep: true, Method: explore.DPOR,
	},
	{
		Name:   "truncate-fsync",
		About:  "a truncate, an fsync after it and a writer beyond EOF",
		File:   File{Size: 8 * k, Cached: all(8 * k)},
		Tasks:  []Task{{"truncate", []Op{Truncate(4 * k), Fsync()}}, {"writer", []Op{Write(8*k, 4*k)}}},
		Switch: dataClasses, Rule: calls, Deep: true,
	},
	{
		Name:   "mmap-source",
		About:  "a write whose source is a mapping of the page that it overwrites",
		File:   File{Size: 8 * k, Cached: all(8 * k)},
		Tasks:  []Task{{"writer", []Op{{Kind: OpWrite, Off: 4 * k, N: 4 * k, Mapped: true, MapOff: 4 * k}}}},
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "short-copy",
		About: "a write of a page that is not in memory, whose source gives 512 bytes at a time, or all",
		Goal:  "never end",
		File:  File{Size: 4 * k}, Tasks: []Task{{"writer", []Op{{Kind: OpWrite, N: 4 * k, Short: 512}}}},
		Switch: inodeClasses, Rule: calls, MaxSteps: 1000,
	},
	{
		Name:  "append-writeback",
		About: "a write beyond EOF while its pages are being written back",
		Goal:  "lose what was written: writeback drops pages beyond EOF",
		File:  File{Size: 4 * k, Cached: all(4 * k)}, Tasks: writerAnd(Write(4*k, 4*k), "writeback", Flush()),
		Switch: inodeClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "two-appends",
		About: "two writes beyond EOF, the second of which leaves a gap to be zeroed",
		Goal:  "zero what the other has written",
		File:  File{Size: 2 * k, Cached: all(4 * k)}, Tasks: writers(Write(2*k, 4*k), Write(12*k, 4*k)),
		Switch: inodeClasses, Rule: calls,
	},
	{
		Name:  "page-and-extent",
		About: "a writer and writeback of the same dirty page: page lock, then extent lock",
		Goal:  "let each wait for the other's lock",
		File:  File{Size: 4 * k, Dirty: all(4 * k)}, Tasks: writerAnd(Write(0, 4*k), "writeback", Flush()),
		Switch: inodeClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "range-and-space",
		About: "low data space: a fallocate waits for space, a flush for an ordered extent, its completion for a range that a fiemap has locked",
		Goal:  "close the circle",
		File:  File{Size: 16 * k, Dirty: []oracle.Range{{Lo: 0, Hi: 4 * k}}}, FillTo: 16 * k,
		Tasks:  []Task{{"fallocate", []Op{may(Fallocate(16*k, 64*k))}}, {"fiemap", []Op{Map(0, 32*k)}}, {"writeback", []Op{Flush()}}},
		Switch: []string{"extent", "space_ticket", "ordered_extent"}, Rule: calls,
	},
	{
		Name:  "nowait-writer",
		About: "a NOWAIT write and a blocking write of the same pages",
		File:  File{Size: 8 * k, Nocow: true, Cached: all(8 * k)}, Tasks: []Task{{"ring", []Op{NowaitWrite(0, 8*k)}}, {"writer", []Op{Write(0, 8*k)}}},
		Switch: inodeClasses, Rule: calls, Deep: true, Policies: nowaitBuffered,
	},
	{
		Name:  "nowait-range",
		About: "a NOWAIT write of a range that a fiemap holds",
		Goal:  "let the NOWAIT write wait for the range",
		File:  File{Size: 8 * k, Nocow: true, Cached: all(8 * k)}, Tasks: []Task{{"ring", []Op{NowaitWrite(0, 8*k)}}, {"fiemap", []Op{Map(4*k, 4*k)}}},
		Switch: inodeClasses, Rule: calls, Deep: true, Policies: nowaitBuffered,
	},
	{
		Name:  "nowait-stable",
		About: "a NOWAIT write of a page that writeback has in hand: Linux prepares its folios as if it could wait",
		Goal:  "let the NOWAIT write sleep",
		File:  File{Size: 4 * k, Nocow: true, Dirty: all(4 * k)}, Tasks: []Task{{"ring", []Op{NowaitWrite(0, 4*k)}}, {"writeback", []Op{Flush()}}},
		Switch: deviceClasses, Rule: calls, Deep: true, Policies: nowaitBuffered,
	},
	{
		Name:  "nowait-ordered",
		About: "a NOWAIT write of a range whose ordered extent has not finished: Linux waits for it, and then says EAGAIN",
		Goal:  "let the NOWAIT write wait for the ordered extent",
		File:  File{Size: 4 * k, Nocow: true, Dirty: all(4 * k)}, Tasks: []Task{{"ring", []Op{NowaitWrite(0, 4*k)}}, {"writeback", []Op{Flush()}}},
		Switch: append([]string{"workqueue_idle"}, deviceClasses...), Rule: calls, Deep: true, Policies: nowaitBuffered,
	},
	{
		Name:  "nowait-grow",
		About: "a NOWAIT write beyond an EOF in the middle of a block, which is being written back",
		Goal:  "let the NOWAIT write sleep before its first byte",
		File:  File{Size: 2 * k, Nocow: true, Dirty: all(2 * k)}, Tasks: []Task{{"ring", []Op{NowaitWrite(8*k, 4*k)}}, {"writeback", []Op{Flush()}}},
		Switch: deviceClasses, Rule: calls, Deep: true, Policies: nowaitBuffered,
	},
	{
		Name:  "nowait-space",
		About: "low data space: a NOWAIT write and a writer that takes the last of it",
		Goal:  "show ENOSPC to a request that a flush would have helped",
		File:  File{Size: 4 * k, Nocow: true}, FillTo: 48 * k,
		Tasks:  []Task{{"ring", []Op{NowaitWrite(64*k, 32*k)}}, {"writer", []Op{may(Write(8*k, 32*k))}}},
		Switch: []string{"i_rwsem", "space_ticket", "extent"}, Rule: oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesApart}, Deep: true,
		Policies: nowaitBuffered,
	},
	{
		Name:  "nowait-quota",
		About: "a NOWAIT write whose data does not fit the quota, though dirty data could leave room: Linux flushes and commits for it",
		Goal:  "let the NOWAIT write sleep for a quota",
		File:  File{Size: 64 * k, Nocow: true, Dirty: all(8 * k)}, Quota: 48 * k,
		Tasks:  []Task{{"ring", []Op{NowaitWrite(32*k, 32*k)}}, {"writeback", []Op{Flush()}}},
		Switch: []string{"i_rwsem", "extent", "ordered_extent"}, Rule: calls, Deep: true, Preemptions: 2, Prove: true, Policies: nowaitBuffered,
	},
	{
		Name:  "nowait-privs",
		About: "a NOWAIT write of a program with capabilities, which go: that needs a transaction, and the tree",
		Goal:  "let the NOWAIT write sleep before its first byte",
		File:  File{Size: 4 * k, Nocow: true, Privileged: true}, Tasks: []Task{{"ring", []Op{NowaitWrite(0, 4*k)}}, {"sync", []Op{Sync()}}},
		Switch: []string{"i_rwsem", "tree_fs"}, Rule: calls, Deep: true, Policies: nowaitBuffered,
	},
	{
		Name:  "nowait-throttle",
		About: "a NOWAIT write of two batches that is throttled after the first",
		Goal:  "leave space reserved that nobody will use",
		File:  File{Size: 96 * k, Nocow: true, Dirty: []oracle.Range{{Lo: 48 * k, Hi: 96 * k}}}, DirtyLimit: 64 * k,
		Tasks:  []Task{{"ring", []Op{NowaitWrite(0, big)}}},
		Switch: []string{"i_rwsem", "balance_dirty", "flusher_idle", "ordered_extent"}, Rule: oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesWith}, Deep: true,
		Policies: nowaitBuffered,
	},
	{
		Name:  "nowait-dio-range",
		About: "a NOWAIT direct write of a range that a fiemap holds: until 5.18 it waits, at one place or another",
		Goal:  "let the NOWAIT write wait for the range",
		File:  File{Size: 8 * k, Nocow: true}, Tasks: []Task{{"ring", []Op{NowaitDirect(0, 8*k)}}, {"fiemap", []Op{Map(4*k, 4*k)}}},
		Switch: inodeClasses, Rule: calls, Deep: true, Policies: policy.NowaitNames(),
	},
	{
		Name:  "nowait-dio-writers",
		About: "two NOWAIT direct writes of the same block",
		File:  File{Size: 4 * k, Nocow: true}, Tasks: []Task{{"ring A", []Op{NowaitDirect(0, 4*k)}}, {"ring B", []Op{NowaitDirect(0, 4*k)}}},
		Switch: inodeClasses, Rule: calls, Deep: true, Policies: policy.NowaitNames(),
	},
	{
		Name:  "nowait-dio-reader",
		About: "a NOWAIT direct write and a buffered reader, which brings the page back: until 5.18 the write goes through the cache then",
		Goal:  "let the NOWAIT write sleep in the page cache",
		File:  File{Size: 4 * k, Nocow: true}, Tasks: []Task{{"ring", []Op{NowaitDirect(0, 4*k)}}, {"reader", []Op{Read(0, 4*k)}}},
		Switch: inodeClasses, Rule: calls, Deep: true, Policies: policy.NowaitNames(),
	},
	{
		Name:  "nowait-dio-async",
		About: "a NOWAIT direct write into a file that was compressed, and a buffered writer, which makes the page dirty: without D0 it is written back first",
		Goal:  "let the NOWAIT write wait for writeback",
		File:  File{Unwritten: 4 * k, Compressed: true}, Tasks: []Task{{"ring", []Op{NowaitDirect(0, 4*k)}}, {"writer", []Op{Write(0, 4*k)}}},
		Switch: directClasses, Rule: calls, Deep: true, Preemptions: 2, Prove: true, Policies: policy.NowaitNames(),
	},
	{
		Name:  "nowait-dio-refs",
		About: "a NOWAIT direct write while a commit has the delayed references: until 6.0 it waits for them",
		Goal:  "let the NOWAIT write wait for a reference of an extent that it does not write",
		File:  File{Size: 12 * k, Nocow: true, Dirty: []oracle.Range{{Lo: 8 * k, Hi: 12 * k}}},
		Tasks: []Task{{"ring", []Op{NowaitDirect(0, 4*k)}}, {"sync", []Op{Sync()}}},
		// A commit takes the lock for each of its references: two preemptions are enough to stop it
		// with the lock in its hands.
		Switch: []string{"delayed_refs"}, Rule: calls, Deep: true, Preemptions: 2, Prove: true, MaxSteps: 5000, Policies: policy.NowaitNames(),
	},
	{
		Name:   "ring-writers",
		About:  "a ring's writes of one page, one tried and one for a worker, and another writer of it",
		File:   File{Size: 4 * k, Nocow: true, Cached: all(4 * k)},
		Tasks:  []Task{{"ring", Ring(Write(0, 4*k), Async(Write(0, 4*k)))}, {"writer", []Op{Write(0, 4*k)}}},
		Switch: ringClasses, Rule: calls, Deep: true, Preemptions: 2, Prove: true, Policies: nowaitBuffered,
	},
	{
		Name:   "ring-nowait",
		About:  "a ring's write with RWF_NOWAIT and one without it of a range that a fiemap holds: EAGAIN for one, a worker for the other",
		Goal:   "let the submitter wait for the range",
		File:   File{Size: 8 * k, Nocow: true, Cached: all(8 * k)},
		Tasks:  []Task{{"ring", Ring(NowaitWrite(0, 8*k), Write(0, 8*k))}, {"fiemap", []Op{Map(4*k, 4*k)}}},
		Switch: ringClasses, Rule: calls, Deep: true, Preemptions: 3, Prove: true, Policies: nowaitBuffered,
	},
	{
		Name:   "ring-short",
		About:  "a ring's write of two batches of which the second finds its range locked: a worker writes it. Another task reads the first page and writes it",
		Goal:   "write the first page again over the other task's bytes",
		File:   File{Size: big, Nocow: true, Cached: all(big)},
		Tasks:  []Task{{"ring", Ring(Write(0, big))}, {"fiemap", []Op{Map(32*k, 4*k)}}, {"other", []Op{Read(0, 4*k), Write(0, 4*k)}}},
		Switch: []string{"i_rwsem", "extent"}, Rule: oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesWith}, Deep: true,
		Preemptions: 2, Prove: true, Policies: nowaitBuffered,
	},
	{
		Name:   "ring-order",
		About:  "two writes of a ring for workers: those of one inode are carried out one after the other, in the order of the requests",
		Goal:   "let the second write end before the first",
		File:   File{Size: 4 * k, Nocow: true, Cached: all(4 * k)},
		Tasks:  []Task{{"ring", Ring(Async(Write(0, 4*k)), Async(Write(0, 4*k)))}, {"reader", []Op{Read(0, 4*k)}}},
		Switch: ringClasses, Rule: calls, Deep: true, Preemptions: 2, Prove: true, Policies: nowaitBuffered,
	},
	{
		Name:  "ring-truncate",
		About: "a ring's write for a worker, and a truncate below it",
		Goal:  "make the truncate get lost",
		File:  File{Size: 16 * k, Nocow: true, Cached: all(16 * k)}, Tasks: []Task{{"ring", Ring(Async(Write(8*k, 8*k)))}, {"truncate", []Op{Truncate(4 * k)}}},
		Switch: ringClasses, Rule: calls, Deep: true, Preemptions: 3, Prove: true, Policies: nowaitBuffered,
	},
	{
		Name:   "ring-fsync",
		About:  "a ring's write and then its fsync, each by a worker, and a writer of the page beside it that syncs",
		Goal:   "let an fsync that began after a write had completed promise less than the write",
		File:   File{Size: 8 * k, Nocow: true, Cached: all(8 * k)},
		Tasks:  []Task{{"ring", append(Ring(Async(Write(0, 4*k))), Ring(Fsync())...)}, {"writer", []Op{Write(4*k, 4*k), Fsync()}}},
		Switch: []string{"i_rwsem", "ordered_extent"}, Rule: calls, Deep: true, Preemptions: 1, Policies: nowaitBuffered,
	},
	{
		Name:   "ring-direct",
		About:  "a ring's direct writes of one block, one tried and one for a worker, and a buffered reader, which brings the page back",
		Goal:   "let the submitter sleep, or a page keep bytes that the device no longer has",
		File:   File{Size: 4 * k, Nocow: true},
		Tasks:  []Task{{"ring", Ring(DirectWrite(0, 4*k), Async(DirectWrite(0, 4*k)))}, {"reader", []Op{Read(0, 4*k)}}},
		Switch: directClasses, Rule: calls, Deep: true, Preemptions: 2, Policies: []string{"nowait-5.19", "nowait-6.1", "nowait-strict"},
	},
	{
		Name:  "ring-direct-extents",
		About: "a ring's direct write of two extents, which NOWAIT does not take, and a truncate between them",
		Goal:  "make the truncate get lost, or a completion come with a part",
		File:  File{Size: 8 * k, Nocow: true, Extent: 4 * k}, Tasks: []Task{{"ring", Ring(DirectWrite(0, 8*k))}, {"truncate", []Op{Truncate(4 * k)}}},
		Switch: directClasses, Rule: oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesWith}, Deep: true, Preemptions: 2, Prove: true, Policies: policy.NowaitNames(),
	},
	{
		Name:  "nowait-dio-snapshot",
		About: "a NOWAIT direct write, which is to go in place, and a snapshot",
		Goal:  "let the snapshot wait for a writer that has gone",
		File:  File{Size: 4 * k, Nocow: true}, Tasks: []Task{{"ring", []Op{NowaitDirect(0, 4*k)}}, {"snapshot", []Op{Snapshot()}}},
		Switch: []string{"snapshot_lock", "extent"}, Rule: calls, Deep: true, Preemptions: 2, Prove: true, Policies: policy.NowaitNames(),
	},
	{
		Name:  "nowait-dio-csums",
		About: "a NOWAIT direct write into preallocated space, whose checksums are looked for while a completion inserts those of another block",
		Goal:  "let the NOWAIT write wait for a block of the checksum tree",
		File:  File{Size: 4 * k, Prealloc: 16 * k, Dirty: all(4 * k)}, Tasks: []Task{{"ring", []Op{NowaitDirect(4*k, 4*k)}}, {"writeback", []Op{Flush()}}},
		Switch: []string{"tree_csum"}, Rule: calls, Deep: true, Preemptions: 2, Prove: true, Policies: []string{"nowait-6.1", "nowait-strict"},
	},
	{
		Name:  "nowait-dio-eof",
		About: "a NOWAIT direct write into space that is preallocated beyond EOF, and nobody else",
		Goal:  "refuse a request that has nothing to wait for",
		File:  File{Size: 4 * k, Prealloc: 16 * k, Nocow: true}, Tasks: []Task{{"ring", []Op{{Kind: OpWrite, Off: 4 * k, N: 4 * k, Direct: true, Nowait: true, Sure: true}}}},
		Switch: sourceClasses, Rule: calls, Deep: true, Policies: policy.NowaitNames(),
	},
	{
		Name:  "nowait-dio-cow",
		About: "low data space: a NOWAIT direct write whose first block can go in place and whose second one is a hole",
		Goal:  "let the NOWAIT write wait for the space of the hole",
		File:  File{Size: 16 * k, Nocow: true, Dirty: []oracle.Range{{Lo: 8 * k, Hi: 16 * k}}}, FillTo: 4 * k,
		Tasks:  []Task{{"ring", []Op{Punch(4*k, 4*k), NowaitDirect(0, 8*k)}}, {"writeback", []Op{Flush()}}},
		Switch: sourceClasses, Rule: calls, Deep: true, Preemptions: 2, Prove: true, Policies: policy.NowaitNames(),
	},
	{
		Name:  "nowait-dio-extents",
		About: "two NOWAIT direct writes over two extents",
		Goal:  "end with an extent of one and an extent of the other",
		File:  File{Size: 8 * k, Nocow: true, Extent: 4 * k}, Tasks: []Task{{"ring A", []Op{NowaitDirect(0, 8*k)}}, {"ring B", []Op{NowaitDirect(0, 8*k)}}},
		Switch: directClasses, Rule: calls, Deep: true, Preemptions: 2, Prove: true, Policies: policy.NowaitNames(),
	},
	{
		Name:  "direct-append",
		About: "two direct appends to a file that is not empty, and a buffered one",
		Goal:  "let two of them find the same end",
		File:  File{Size: 4 * k},
		Tasks: []Task{{"writer A", []Op{{Kind: OpWrite, N: 4 * k, Direct: true, Append: true}}},
			{"writer B", []Op{{Kind: OpWrite, N: 8 * k, Direct: true, Append: true}, {Kind: OpWrite, N: 2 * k, Append: true}}}},
		Switch: extentClasses, Rule: oracle.Rule{Write: oracle.Extent, Read: oracle.Page, Sizes: oracle.SizesWith}, Deep: true, Preemptions: 2,
	},
	{
		Name:  "direct-writers",
		About: "two direct writes of the same extent of a NOCOW file",
		Goal:  "end with a block of one and a block of the other",
		File:  File{Size: 8 * k, Nocow: true}, Tasks: writers(DirectWrite(0, 8*k), DirectWrite(0, 8*k)),
		Switch: directClasses, Rule: calls, Preemptions: 3, Prove: true,
	},
	{
		Name:  "direct-extents",
		About: "two direct writes of the same three extents: each extent is one writer's",
		File:  File{Size: 12 * k, Nocow: true, Extent: 4 * k}, Tasks: writers(DirectWrite(0, 12*k), DirectWrite(0, 12*k)),
		Switch: extentClasses, Rule: oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesWith}, Preemptions: 2,
	},
	{
		Name:  "direct-extents-whole",
		About: "two direct writes of the same two extents, and whether they are whole",
		Goal:  "end with the first extent of one and the second of the other",
		File:  File{Size: 8 * k, Nocow: true, Extent: 4 * k}, Tasks: writers(DirectWrite(0, 8*k), DirectWrite(0, 8*k)),
		Switch: extentClasses, Rule: calls, Preemptions: 2,
	},
	{
		Name:  "direct-overlap",
		About: "two direct writes that overlap in the extent that both begin or end with",
		File:  File{Size: 12 * k, Nocow: true, Extent: 4 * k}, Tasks: writers(DirectWrite(0, 8*k), DirectWrite(4*k, 8*k)),
		Switch: extentClasses, Rule: oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesWith}, Preemptions: 2,
	},
	{
		Name:  "direct-reader",
		About: "a direct write and a task that reads its block through the cache, past it, and through it again",
		Goal:  "see the new bytes and then the old ones",
		File:  File{Size: 4 * k, Nocow: true},
		Tasks: writerAnd(DirectWrite(0, 4*k), "reader", Read(0, 4*k), DirectRead(0, 4*k), Read(0, 4*k)), Switch: directClasses, Rule: calls, Deep: true, Preemptions: 2,
	},
	{
		Name:  "direct-buffered",
		About: "a direct write and a write through the cache of the same pages, which are in memory",
		File:  File{Size: 8 * k, Nocow: true, Cached: all(8 * k)}, Tasks: []Task{{"direct", []Op{DirectWrite(0, 8*k)}}, {"buffered", []Op{Write(0, 8*k)}}},
		Switch: directClasses, Rule: calls, Deep: true, Preemptions: 3, Prove: true,
	},
	{
		Name:  "direct-readahead",
		About: "a direct write into preallocated space, and a reader whose readahead comes to it",
		Goal:  "read zeros after the write has returned",
		File:  File{Nocow: true, Unwritten: 4 * k}, Tasks: writerAnd(DirectWrite(0, 4*k), "reader", Read(0, 4*k)),
		Switch: directClasses, Rule: sectorRule, Deep: true, Preemptions: 2, Prove: true,
	},
	{
		Name:  "direct-truncate",
		About: "a direct write inside EOF and a truncate below it",
		Goal:  "make the truncate get lost",
		File:  File{Size: 16 * k, Nocow: true}, Tasks: writerAnd(DirectWrite(8*k, 8*k), "truncate", Truncate(4*k)),
		Switch: directClasses, Rule: calls, Deep: true, Preemptions: 3, Prove: true,
	},
	{
		Name:   "direct-truncate-read",
		About:  "a direct write, a truncate into it and a buffered read: the read has i_size and the page from two moments, as in Linux",
		Goal:   "let the read see what no order of the other two leaves",
		File:   File{Size: 8 * k},
		Tasks:  []Task{{"writer", []Op{DirectWrite(0, 8*k)}}, {"truncate", []Op{Truncate(4 * k)}}, {"reader", []Op{Read(0, 8*k)}}},
		Switch: extentClasses, Rule: oracle.Rule{Write: oracle.Extent, Read: oracle.Page, Sizes: oracle.SizesApart}, Deep: true, Preemptions: 2,
	},
	{
		Name:  "direct-read-truncate",
		About: "a direct read, and a truncate whose blocks another file's write could take",
		File:  File{Size: 8 * k, Nocow: true}, Tasks: []Task{{"reader", []Op{DirectRead(0, 8*k)}}, {"truncate", []Op{Truncate(4 * k), DirectWrite(4*k, 4*k)}}},
		Switch: directClasses, Rule: calls, Deep: true, Preemptions: 3, Prove: true,
	},
	{
		Name:  "direct-punch",
		About: "a direct write inside EOF and a hole punched over its range",
		File:  File{Size: 12 * k, Nocow: true}, Tasks: writerAnd(DirectWrite(4*k, 8*k), "punch", Punch(4*k, 8*k)),
		Switch: directClasses, Rule: calls, Deep: true, Preemptions: 3, Prove: true,
	},
	{
		Name:  "direct-grow",
		About: "two direct writes inside EOF, which a truncate moves before both",
		Goal:  "lose the end of file that one of them made",
		File:  File{Size: 8 * k, Nocow: true}, Tasks: []Task{{"writer A", []Op{DirectWrite(0, 4*k)}}, {"writer B", []Op{DirectWrite(4*k, 4*k)}}, {"truncate", []Op{Truncate(0)}}},
		Switch: []string{"i_rwsem", "dio_wait"}, Rule: calls, Preemptions: 2, Prove: true,
	},
	{
		Name:  "direct-fsync",
		About: "a direct write and an fsync, while a sync of the file system commits its time stamps",
		Goal:  "let fsync return before the data is out of the device's cache",
		File:  File{Size: 4 * k, Nocow: true}, Tasks: []Task{{"writer", []Op{DirectWrite(0, 4*k), Fsync()}}, {"sync", []Op{Sync()}}},
		Switch: stampClasses, Rule: calls, Deep: true, Preemptions: 3, Prove: true,
	},
	{
		Name:  "direct-log",
		About: "a queued direct write to a new place, and an fsync that writes a log",
		Goal:  "let a log have an extent before the device has its data",
		File:  File{Size: 4 * k}, Tasks: []Task{{"writer", []Op{QueuedWrite(0, 4*k)}}, {"fsync", []Op{Fsync()}}},
		Switch: []string{"i_rwsem", "extent", "ordered_extent", "device"}, Rule: calls, Deep: true, Preemptions: 2, Prove: true,
		Policies: policy.FsyncNames(),
	},
	{
		Name:   "log-writer",
		About:  "two fsyncs of one file that write a log, each after a write",
		Goal:   "let an fsync share a sync of the log that has not got its write",
		File:   File{Size: 8 * k},
		Tasks:  []Task{{"fsync A", []Op{Write(0, 4*k), Fsync()}}, {"fsync B", []Op{Write(4*k, 4*k), Fsync()}}},
		Switch: []string{"i_rwsem", "log_mutex", "log_wait"}, Rule: calls, Deep: true, ByLog: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:   "log-truncate",
		About:  "an fsync that writes a log, and a truncate",
		Goal:   "let a log have an extent, or a size, that the truncate has taken away",
		File:   File{Size: 8 * k},
		Tasks:  []Task{{"fsync", []Op{Write(0, 8*k), Fsync()}}, {"truncate", []Op{Truncate(4 * k), Fsync()}}},
		Switch: []string{"i_rwsem", "extent", "log_mutex"}, Rule: calls, Deep: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:   "log-punch",
		About:  "an fsync that writes a log, a punch of what it has logged, and another fsync",
		Goal:   "bring back after a power cut what was punched",
		File:   File{Size: 8 * k},
		Tasks:  []Task{{"fsync", []Op{Write(0, 8*k), Fsync()}}, {"punch", []Op{Punch(0, 4*k), Fsync()}}},
		Switch: []string{"i_rwsem", "extent", "log_mutex"}, Rule: calls, Deep: true, Preemptions: 1, Policies: logPolicies(),
	},
	{
		Name:   "log-punch-block",
		About:  "a punch inside one block of a file that is durable, and an fsync that writes a log",
		Goal:   "let an fsync find nothing to do",
		File:   File{Size: 8 * k},
		Tasks:  []Task{{"punch", []Op{Punch(1*k, 1*k), Fsync()}}, {"writeback", []Op{Flush()}}},
		Switch: []string{"i_rwsem", "extent", "log_mutex"}, Rule: calls, Deep: true, Preemptions: 1, Prove: true, Policies: logPolicies(),
	},
	{
		Name:   "log-commit",
		About:  "two fsyncs that write a log, and a commit of the transaction that the log belongs to",
		Goal:   "let a commit free a log that is all there is of a write",
		File:   File{Size: 8 * k},
		Tasks:  []Task{{"fsync A", []Op{Write(0, 4*k), Fsync()}}, {"fsync B", []Op{Write(4*k, 4*k), Fsync()}}, {"sync", []Op{Sync()}}},
		Switch: []string{"i_rwsem", "log_mutex", "transaction", "commit"}, Rule: calls, Deep: true, Preemptions: 1, Policies: logPolicies(),
	},
	{
		Name:   "log-group",
		About:  "fsyncs of two files that write one log, each after a write: they share a sync of it",
		Goal:   "let an fsync return while the other one still writes the log",
		File:   File{Size: 4 * k},
		Second: 4 * k,
		Tasks:  []Task{{"fsync A", []Op{Write(0, 4*k), Fsync()}}, {"fsync B", []Op{Second(Write(0, 4*k)), Second(Fsync())}}},
		Switch: []string{"log_mutex", "log_wait", "device"}, Rule: calls, Deep: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:   "log-rename",
		About:  "an fsync that writes a log, of a file that is renamed over another one at the same time, and one after that",
		Goal:   "let a power cut leave both names, or none, or a log that cannot be replayed",
		File:   File{Size: 4 * k},
		Second: 4 * k,
		Tasks:  []Task{{"fsync", []Op{Second(Write(0, 4*k)), Second(Fsync())}}, {"rename", []Op{Rename("/second", "/file"), Second(Fsync())}}},
		Switch: []string{"i_rwsem", "log_pin", "log_mutex", "tree_fs"}, Rule: calls, Deep: true, ByLog: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:   "log-rename-chain",
		About:  "a file is renamed, another one takes its name and is synced by a log, while the first is written and synced",
		Goal:   "lose the first file",
		File:   File{Size: 4 * k},
		Second: 4 * k,
		Tasks:  []Task{{"rename", []Op{Rename("/file", "/third"), Rename("/second", "/file"), Second(Fsync())}}, {"fsync", []Op{Write(0, 4*k), Fsync()}}},
		Switch: []string{"i_rwsem", "log_pin", "log_mutex"}, Rule: calls, Deep: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:   "log-rename-victim",
		About:  "an fsync that writes a log, of a file that another one is renamed over",
		Goal:   "let a power cut leave neither of the two whole",
		File:   File{Size: 4 * k},
		Second: 4 * k,
		Tasks:  []Task{{"fsync", []Op{Write(0, 4*k), Fsync()}}, {"rename", []Op{Second(Write(0, 4*k)), Rename("/second", "/file"), Second(Fsync())}}},
		Switch: []string{"i_rwsem", "log_pin", "log_mutex"}, Rule: calls, Deep: true, Preemptions: 1, Policies: logPolicies(),
	},
	{
		Name:   "log-pin",
		About:  "an fsync that logs the name of another file, whose old name it has taken, while that one is renamed again",
		Goal:   "let a power cut take the other file's last name",
		File:   File{Size: 4 * k},
		Second: 4 * k,
		Before: []Op{Rename("/file", "/third"), Rename("/second", "/file")},
		Tasks:  []Task{{"fsync", []Op{Second(Fsync())}}, {"rename", []Op{Rename("/third", "/fourth")}}},
		Switch: []string{"log_pin", "log_mutex", "tree_fs"}, Rule: calls, Deep: true, ByLog: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:   "log-commit-files",
		About:  "fsyncs of two files that write one log, and a commit of the transaction that the log belongs to",
		Goal:   "let a commit free the log before the trees have what is in it",
		File:   File{Size: 4 * k},
		Second: 4 * k,
		Tasks:  []Task{{"fsync A", []Op{Write(0, 4*k), Fsync()}}, {"fsync B", []Op{Second(Write(0, 4*k)), Second(Fsync())}}, {"sync", []Op{Sync()}}},
		Switch: []string{"log_mutex", "transaction", "commit", "ordered_extent"}, Rule: calls, Deep: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:  "direct-dsync",
		About: "a durable direct write, and an fsync by the same open file",
		Goal:  "let a task wait for the lock that it has, or rely on one that it has not",
		File:  File{Size: 4 * k, Nocow: true},
		Tasks: []Task{{"writer", []Op{{Kind: OpWrite, N: 4 * k, Direct: true, DSync: true}}}, {"fsync", []Op{Fsync()}}}, Switch: []string{"i_rwsem", "ordered_extent", "log_mutex"}, Rule: calls, Deep: true, Preemptions: 3,
	},
	{
		Name:  "direct-fault",
		About: "a direct write into new space whose source gives 4 KiB, or all",
		Goal:  "lose what the write has reported",
		File:  File{Nocow: true}, Tasks: []Task{{"writer", []Op{{Kind: OpWrite, N: 8 * k, Direct: true, Short: 4 * k}}}},
		Switch: sourceClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "direct-append-fault",
		About: "a direct append whose source is not there",
		Goal:  "append in the wrong place",
		File:  File{Nocow: true}, Tasks: []Task{{"writer", []Op{{Kind: OpWrite, N: 8 * k, Direct: true, Append: true, Short: 4 * k}}}},
		Switch: sourceClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "direct-mapped",
		About: "a direct write whose source is a mapping of the block that it writes",
		Goal:  "let the write wait for itself",
		File:  File{Size: 4 * k, Nocow: true}, Tasks: []Task{{"writer", []Op{{Kind: OpWrite, N: 4 * k, Direct: true, Mapped: true}}}},
		Switch: sourceClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "unaligned-writers",
		About: "two direct writes of one sector each, of a block that is allocated and not written",
		Goal:  "let the zeros of one write cover the bytes of the other",
		File:  File{Nocow: true, Unwritten: 4 * k}, Tasks: writers(DirectWrite(0, 512), DirectWrite(512, 512)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2, Prove: true,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-reader",
		About: "a queued direct write of a sector, and a reader, which brings the block into memory",
		Goal:  "let the old page stay",
		File:  File{Size: 4 * k, Nocow: true}, Tasks: writerAnd(QueuedWrite(0, 512), "reader", Read(0, 4*k)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2, Prove: true,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-zeros",
		About: "a direct write of a sector of a block that is allocated and not written, and a reader, to whom it is zeros until it is marked",
		Goal:  "let a page of zeros stay",
		File:  File{Nocow: true, Unwritten: 4 * k}, Tasks: writerAnd(DirectWrite(0, 512), "reader", Read(0, 4*k)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2, Prove: true,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-and-buffered",
		About: "a queued direct write of a sector, and a write of the next sector through the page cache",
		Goal:  "read the page before the first sector is on the device, and write it back after that",
		File:  File{Size: 4 * k, Nocow: true}, Tasks: writers(QueuedWrite(0, 512), Write(512, 512)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2, Prove: true,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-mark",
		About: "writes of two sectors of a block that is allocated and not written, one direct and one through the page cache",
		Goal:  "zero the block when writeback has written it and not yet marked it written",
		File:  File{Nocow: true, Unwritten: 4 * k}, Tasks: writers(DirectWrite(0, 512), Write(512, 512)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2, Prove: true,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-punch",
		About: "a queued direct write of a sector, and a punch of the next one, which zeroes it in a page",
		Goal:  "read the page before the first sector is on the device, and write it back after that",
		File:  File{Size: 4 * k, Nocow: true}, Tasks: writerAnd(QueuedWrite(0, 512), "punch", Punch(512, 512)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2, Prove: true,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-grow",
		About: "a queued direct write of the last sector, and a truncate that makes the file longer and zeroes the rest of the block",
		Goal:  "read the page before the sector is on the device, and write it back after that",
		File:  File{Size: 2 * k, Nocow: true}, Tasks: writerAnd(QueuedWrite(1536, 512), "truncate", Truncate(8*k)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2, Prove: true,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-beyond",
		About: "a queued direct write of the last sector, and a direct write of a whole block beyond the end, which zeroes the rest of the first",
		Goal:  "read the page before the sector is on the device, and write it back after that",
		File:  File{Size: 2 * k, Nocow: true}, Tasks: writers(QueuedWrite(1536, 512), DirectWrite(4*k, 4*k)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2, Prove: true,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-snapshot",
		About: "a queued direct write of a sector, and a snapshot",
		Goal:  "change the snapshot after it was made",
		File:  File{Size: 4 * k, Nocow: true}, Tasks: writerAnd(QueuedWrite(0, 512), "snapshot", Snapshot()),
		Switch: append([]string{"snapshot_lock"}, unalignedClasses...), Rule: sectorRule, Deep: true, Preemptions: 2,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-extents",
		About: "a direct write of sectors that begins in one extent and ends in another, with a whole block between them, and one of the next sector",
		Goal:  "lose a sector of the last block",
		File:  File{Size: 12 * k, Nocow: true, Extent: 4 * k}, Tasks: writers(DirectWrite(512, 8*k), DirectWrite(8*k+512, 512)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2,
		Policies: policy.UnalignedNames(),
	},
	{
		Name:  "unaligned-drain",
		About: "a direct write of a block that has let i_rwsem go, and one of a sector of it: the block is not written",
		Goal:  "zero what the first write has put on the device",
		File:  File{Nocow: true, Unwritten: 4 * k}, Tasks: writers(DirectWrite(0, 4*k), DirectWrite(512, 512)),
		Switch: unalignedClasses, Rule: sectorRule, Deep: true, Preemptions: 2,
		Policies: []string{"locked+UNALIGNED_EXCLUSIVE"},
	},
	{
		Name:  "direct-full",
		About: "a direct write in place on a file system without space for data",
		Goal:  "fail for want of space that is not needed",
		File:  File{Size: 32 * k, Nocow: true}, FillTo: 4 * k, Tasks: []Task{{"writer", []Op{DirectWrite(0, 32*k)}}},
		Switch: sourceClasses, Rule: calls, Deep: true,
	},
	{
		Name:  "direct-and-space",
		About: "low data space: a direct write waits for space, a flush for an ordered extent, its completion for a range that a fiemap has locked",
		Goal:  "close the circle",
		File:  File{Size: 96 * k, Nocow: true, Dirty: []oracle.Range{{Lo: 0, Hi: 4 * k}}}, FillTo: 16 * k,
		Tasks:  []Task{{"direct", []Op{may(DirectWrite(96*k, 64*k))}}, {"fiemap", []Op{Map(0, 160*k)}}, {"writeback", []Op{Flush()}}},
		Switch: []string{"extent", "space_ticket", "ordered_extent"}, Rule: calls,
	},
	{
		Name:  "reflink-source",
		About: "a reflink of a file into which a write of two batches goes",
		Goal:  "let the reflink have a part of the write",
		File:  File{Size: 64 * k}, Second: 64 * k,
		Tasks:  []Task{{"reflink", []Op{Reflink(0, big, 0)}}, {"writer", []Op{Second(Write(0, big))}}},
		Switch: rangeClasses,
		Rule:   oracle.Rule{Write: oracle.Request, Read: oracle.Request, Sizes: oracle.SizesWith}, Deep: true, Preemptions: 2, Prove: true,
	},
	{
		Name:  "reflink-write",
		About: "a reflink into a file, and a write of two batches into the same range",
		Goal:  "let the file have a part of each",
		File:  File{Size: 64 * k}, Second: 64 * k,
		Tasks:  []Task{{"reflink", []Op{Reflink(0, big, 0)}}, {"writer", []Op{Write(0, big)}}},
		Switch: rangeClasses, Rule: calls, Deep: true, Preemptions: 2, Prove: true,
	},
	{
		Name:  "reflink-truncate",
		About: "a reflink that makes a file longer, a truncate of that file and a reader",
		Goal:  "let the reader see a part of the reflink, or bytes beyond the truncate",
		File:  File{Size: 4 * k, Cached: all(4 * k)}, Second: 16 * k,
		Tasks:  []Task{{"reflink", []Op{Reflink(0, 16*k, 0)}}, {"truncate", []Op{Truncate(4 * k)}}},
		Switch: dataClasses, Rule: calls, Deep: true, Preemptions: 2, Prove: true,
	},
	{
		Name:  "reflink-fsync",
		About: "a reflink, and an fsync of the file that it goes into beside a writer of the other one",
		Goal:  "lose what the reflink shared, or what was written before the fsync",
		File:  File{Size: 16 * k}, Second: 16 * k,
		Tasks:  []Task{{"reflink", []Op{Reflink(0, 16*k, 0), Fsync()}}, {"writer", []Op{Second(Write(0, 16*k)), Second(Fsync())}}},
		Switch: stampClasses, Rule: calls, Deep: true, Preemptions: 1, Policies: logPolicies(),
	},
	{
		Name:  "reflink-snapshot",
		About: "a snapshot beside a reflink into the file",
		Goal:  "get a snapshot that changes",
		File:  File{Size: 16 * k}, Second: 16 * k,
		Tasks:  []Task{{"reflink", []Op{Reflink(0, 16*k, 0)}}, {"snapshot", []Op{Snapshot()}}},
		Switch: stampClasses, Rule: calls, Deep: true, Preemptions: 2,
	},
	{
		Name:   "link-fsync",
		About:  "a file gets another name and is synced, beside a writer that syncs it",
		Goal:   "lose the name",
		File:   File{Size: 4 * k},
		Tasks:  []Task{{"link", []Op{Link("/file", "/third"), Fsync()}}, {"writer", []Op{Write(0, 4*k), Fsync()}}},
		Switch: []string{"i_rwsem", "log_pin", "log_mutex", "tree_fs"}, Rule: calls, Deep: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:  "unlink-fsync",
		About: "a file with two names loses one, and is written and synced meanwhile",
		Goal:  "let a power cut bring the name back after the fsync, or lose the other",
		File:  File{Size: 4 * k}, Second: 4 * k,
		Tasks:  []Task{{"names", []Op{Link("/file", "/third"), Unlink("/file"), Fsync()}}, {"writer", []Op{Write(0, 4*k), Fsync()}}},
		Switch: []string{"i_rwsem", "log_pin", "log_mutex"}, Rule: calls, Deep: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:  "unlink-write",
		About: "a file loses its only name while it is written",
		Goal:  "lose a write to a file that is still open",
		File:  File{Size: 16 * k}, Second: 4 * k,
		Tasks:  []Task{{"unlink", []Op{Unlink("/file"), Sync()}}, {"writer", []Op{Write(0, big), Read(0, big)}}},
		Switch: []string{"i_rwsem", "range_lock", "extent", "ordered_extent"}, Rule: calls, Deep: true, Preemptions: 2,
	},
	{
		Name:  "rename-over-write",
		About: "a rename over a file that is being written",
		Goal:  "lose a write to the file that was replaced, or to the other",
		File:  File{Size: 16 * k}, Second: 16 * k,
		Tasks:  []Task{{"rename", []Op{Rename("/second", "/file"), Second(Fsync())}}, {"writer", []Op{Write(0, big), Read(0, big)}}},
		Switch: []string{"i_rwsem", "range_lock", "extent", "ordered_extent"}, Rule: calls, Deep: true, Preemptions: 2, Prove: true,
	},
	{
		Name:   "chmod-fsync",
		About:  "two chmods of a file that is written and synced meanwhile",
		Goal:   "lose a mode that was synced",
		File:   File{Size: 4 * k},
		Tasks:  []Task{{"chmod", []Op{Chmod("600"), Fsync(), Chmod("640")}}, {"writer", []Op{Write(0, 4*k), Fsync()}}},
		Switch: stampClasses, Rule: calls, Deep: true, Preemptions: 2, Policies: logPolicies(),
	},
	{
		Name:   "setxattr-fsync",
		About:  "an attribute gets one value and another, beside an fsync of the file",
		Goal:   "find neither value after a power cut",
		File:   File{Size: 4 * k},
		Tasks:  []Task{{"setxattr", []Op{Setxattr("one"), Fsync(), Setxattr("another")}}, {"fsync", []Op{Fsync()}}},
		Switch: []string{"i_rwsem", "log_mutex", "tree_fs"}, Rule: calls, Deep: true, Preemptions: 2, Prove: true, Policies: logPolicies(),
	},
	{
		Name:   "setxattr-snapshot",
		About:  "a snapshot beside an attribute that changes",
		Goal:   "get a snapshot that changes",
		File:   File{Size: 4 * k},
		Tasks:  []Task{{"setxattr", []Op{Setxattr("one")}}, {"snapshot", []Op{Snapshot()}}},
		Switch: stampClasses, Rule: calls, Deep: true, Preemptions: 2,
	},
	{
		Name:  "quota-limit",
		About: "the limit of a subvolume is lowered while two writers fill it",
		Goal:  "let a write succeed that the quota does not hold, or lose its reservation",
		File:  File{Size: 4 * k}, Quota: 1 << 20,
		Tasks:  []Task{{"limit", []Op{Limit(16 * k)}}, {"writer", []Op{may(Write(4*k, big)), may(Write(64*k, big))}}},
		Switch: []string{"i_rwsem", "space_ticket", "extent", "qgroup_flush"}, Rule: oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesApart},
		Deep: true, Preemptions: 2, Prove: true,
	},
	{
		Name:  "stripe-writers",
		About: "two direct writes of one full stripe of RAID5, of a block on each of two devices: each reads the other's device and writes the parity",
		Goal:  "lose a block with the next device that fails",
		File:  File{Size: 2 * unit, Nocow: true}, Profile: "raid5", Tasks: writers(DirectWrite(0, 4*k), DirectWrite(unit, 4*k)),
		Switch: []string{"stripe_hash", "device"}, Rule: calls,
	},
}

func may(o Op) Op { o.Fails = true; return o }

// logPolicies are those under which an fsync writes a log.
func logPolicies() []string { return []string{"fsync-5.17", "fsync-5.18"} }
