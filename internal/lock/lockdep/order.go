package lockdep

import "btrlab/internal/sched"

// Row is one class in the lock order.
type Row struct {
	Name string
	Rank int
	Kind sched.LockKind
	// Nested says which code takes or awaits it, and under what.
	Nested string
}

const (
	sleep = sched.LockSleep // a lock that sleeps, or a wait
	bit   = sched.LockBit
	spin  = sched.LockSpin
)

// rankLeaf is the first rank of the leaves: under them nothing is taken but higher leaves, and the
// kernel spins there.
const rankLeaf = 150

// deviceWaits are the classes of the waits for requests of a device: the task polls it meanwhile
// (sched.WaitsForDevice).
var deviceWaits = []string{"aio_events", "device", "device_slot", "uring_cqe"}

// Order is the lock order of the program, outer to inner: a task may take or await only what ranks
// above all that it holds. Classes of one rank are not nested in each other; inside one class sub
// ascends. A new class is a new row: the ranks leave room.
var Order = []Row{
	// 1 to 19: what is held around whole system calls (a ring's mutex, a mount's).
	{"uring_lock", 5, sleep, "uring.Submit, around the inline attempts of a batch"},
	{"aio_events", 10, sleep, "aio.GetEvents: events of a context, with nothing held"},
	{"fio_job", 10, sleep, "fio: the end of a job that wait_for names, with nothing held"},
	{"uring_cqe", 10, sleep, "uring.Wait: completions of a ring, with nothing held; uring.Close: the end of all requests"},
	{"inode_shrink", 15, sleep, "fs: after the last reference to an inode, when memory is short: writeback and commit"},
	{"s_vfs_rename_mutex", 20, sleep, "fs: rename between two directories"},
	{"snapshot_lock", 22, sleep, "fs: while a snapshot is made; a writer in place only tries"},
	{"i_rwsem_dir", 25, sleep, "fs: parents, then children"},
	{"subvol_sem", 28, sleep, "fs: shared while a subvolume is made, alone while the name of one is taken; under i_rwsem_dir"},
	{"lab_file", 30, sleep, "judges: a file of lab 8, in the place of i_rwsem; of lab 7, in the place of a range"},
	{"i_rwsem", 30, sleep, "buffered.Write, setsize, fallocate, fsync; fs under i_rwsem_dir"},
	{"inode_new", 31, sleep, "fs: wait for an inode that another task reads, under i_rwsem_dir"},
	{"subvol_open", 31, sleep, "fs: while a subvolume is opened and its trees are read, under no other lock"},
	{"range_lock", 35, sleep, "buffered.Write and setsize with policy range-lock, under i_rwsem"},
	{"student_wait", 35, sleep, "labs/kit: wait of a student's range lock"},
	{"dio_wait", 40, sleep, "setsize: wait for i_dio_count to be zero, under i_rwsem"},
	{"space_ticket", 50, sleep, "spaceinfo.Reserve: may start writeback and wait for a commit, under i_rwsem"},
	{"lab_flush", 50, sleep, "judges: a flush of lab 7, in the place of space_ticket"},
	{"qgroup_flush", 50, sleep, "qgroup: a flush over a limit may start writeback and wait for a commit, as space_ticket"},
	{"balance_dirty", 55, sleep, "buffered.Write: dirty throttling between batches"},
	{"fault_in", 55, sleep, "buffered.Write: page faults of the source, between batches"},
	{"dio_locked", 58, sleep, "direct I/O: ascending start; completions do not take it"},
	{"ordered_extent", 60, sleep, "wait for one to finish, with no page and no extent range held"},
	{"workqueue_drain", 60, sleep, "wait for works to end, which take what a completion takes"},
	{"page", 70, bit, "buffered.preparePages, writeback, truncate: ascending index"},
	{"stable_page", 75, sleep, "wait for writeback of a locked page"},
	{"extent", 90, sleep, "buffered.lockExtent, writeback, completion: ascending start"},
	{"transaction", 100, sleep, "Start, Join: may wait for a commit"},
	{"commit", 105, sleep, "the one committer"},
	{"transaction_writers", 106, sleep, "the committer waits for open handles"},
	{"inode_hook", 108, sleep, "commit: the items of dirty inodes"},
	{"log_inode", 110, sleep, "treelog: one task at a time copies an inode to the log, with a handle open"},
	{"log_pin", 111, sleep, "treelog: shared by changes of a subvolume's names, with a handle open; alone to log names"},
	{"log_mutex", 112, sleep, "treelog: the log of a subvolume is made, joined or synced"},
	{"log_root_mutex", 113, sleep, "treelog: as log_mutex, of the tree of the logs"},
	{"log_wait", 114, sleep, "treelog: wait for tasks that log, or for another's sync"},
	{"log_super_mutex", 116, sleep, "transaction: Linux's tree_log_mutex: a superblock with a log is written, or a commit goes to the device"},
	{"qgroup_ioctl_lock", 118, sleep, "transaction: quotas are turned on or off, with a handle open"},
	{"super_mutex", 119, sleep, "transaction.WriteSuper: one superblock write at a time, under commit"},
	{"tree_fs", 120, sleep, "ctree.SearchSlot: root to leaf, left to right"},
	{"tree_csum", 121, sleep, "as tree_fs"},
	{"tree_extent", 122, sleep, "as tree_fs; the commit's runs"},
	{"tree_fst", 123, sleep, "as tree_fs; the commit's runs"},
	{"tree_root", 124, sleep, "as tree_fs; the commit's roots"},
	{"tree_chunk", 125, sleep, "as tree_fs; extenttree.AllocChunk"},
	{"tree_log", 126, sleep, "as tree_fs; a log, with no other tree locked"},
	{"chunk_mutex", 130, sleep, "extenttree.AllocChunk, under tree nodes"},
	{"delayed_refs", 140, sleep, "extenttree: the queue of delayed references, under tree nodes"},
	{"block_rsv", 149, sleep, "spaceinfo: under tree nodes, around space_info; Linux has a spinlock"},

	// The leaves.
	{"space_info", rankLeaf, spin, "spaceinfo"},
	{"io_tree", rankLeaf, spin, "extentio: its hooks take inode_mu"},
	{"dio_workers", rankLeaf, spin, "finish: while the workers of deferred ends are made; Linux allocates and compares"},
	{"inode_cache", rankLeaf, spin, "fs"},
	{"ordered_tree", rankLeaf, spin, "ordered"},
	{"student_mutex", rankLeaf, spin, "labs/kit"},
	{"block_group", rankLeaf + 1, spin, "extenttree"},
	{"chunk_map", rankLeaf + 1, spin, "volumes"},
	{"tree_cache", rankLeaf + 1, spin, "ctree"},
	{"extent_map", rankLeaf + 1, spin, "extentmap"},
	{"inode_mu", rankLeaf + 1, spin, "inode: under io_tree"},
	{"mapping", rankLeaf + 1, spin, "pagecache"},
	{"bdi", rankLeaf + 1, spin, "pagecache"},
	{"aio_completion", rankLeaf + 2, spin, "aio: the event ring; ends of requests take it"},
	{"bio_list", rankLeaf + 2, spin, "volumes"},
	{"bounce", rankLeaf + 2, spin, "blockdev: free list of aligned buffers"},
	{"committer_idle", rankLeaf + 2, spin, "transaction: the committer without work"},
	{"device", rankLeaf + 2, spin, "blockdev: wait for a synchronous transfer"},
	{"device_ring", rankLeaf + 2, spin, "blockdev: requests in the kernel's ring"},
	{"device_slot", rankLeaf + 2, spin, "blockdev: wait for room in the kernel's ring"},
	{"device_full", rankLeaf + 2, spin, "dm: wait for room in the device's queue"},
	{"device_idle", rankLeaf + 2, spin, "dm: a device's task without work"},
	{"device_log", rankLeaf + 2, spin, "dm"},
	{"device_overlay", rankLeaf + 2, spin, "dm"},
	{"device_queue", rankLeaf + 2, spin, "dm"},
	{"dirty_inodes", rankLeaf + 2, spin, "inode"},
	{"flusher_idle", rankLeaf + 2, spin, "writeback: the flusher without work"},
	{"io_wq", rankLeaf + 2, spin, "uring: the works of a ring's workers"},
	{"io_wq_idle", rankLeaf + 2, spin, "uring: a worker without work"},
	{"log_blocks", rankLeaf + 2, spin, "extenttree: the blocks of logs"},
	{"log_names", rankLeaf + 2, spin, "treelog: the names that the transaction has removed"},
	{"ordered_pool", rankLeaf + 2, spin, "ordered: free list"},
	{"page_cache", rankLeaf + 2, spin, "pagecache: under mapping"},
	{"page_state", rankLeaf + 2, spin, "pagecache: no lock but the atomics of a page's state, for explore"},
	{"page_table", rankLeaf + 2, spin, "pagecache: no lock but the atomics of a mapping's table, for explore"},
	{"path_list", rankLeaf + 2, spin, "fstree: free list"},
	{"qgroup_lock", rankLeaf + 2, spin, "qgroup: counts, limits and reservations"},
	{"stripe_hash", rankLeaf + 2, spin, "volumes: the rows of RAID5 and RAID6 that are locked; ends of requests take it"},
	{"trans_lock", rankLeaf + 2, spin, "transaction"},
	{"tree_read", rankLeaf + 2, spin, "ctree"},
	{"tree_write", rankLeaf + 2, spin, "ctree"},
	{"uring_completion", rankLeaf + 2, spin, "uring: the completion queue; ends of requests take it"},
	{"unclassed", rankLeaf + 2, spin, "a lock that no code gave a class"},
	{"workqueue", rankLeaf + 2, spin, "workqueue"},
	{"workqueue_idle", rankLeaf + 2, spin, "workqueue: a worker without work"},
	{"writeback", rankLeaf + 2, spin, "writeback"},

	// Not ranked: package explore learns the order of such classes.
	{"lab_bytes", 0, sleep, "judges: the bytes that a student's lock protects"},
	{"student_word", 0, sleep, "labs/kit: a word that tasks of a program of one's own share"},
	{"level_lock", 0, sleep, "levels: the locks of the levels of lab 00"},
	{"level_word", 0, sleep, "levels: the shared words of the levels of lab 00"},
}
