// Package fs is the file system as one object: it opens an image, wires the doors that lower
// packages declare, and offers files and names.
//
// Two ways lead in. Node has the operations by handle and name, as FUSE and NFS ask for them; the
// methods of FS that take a path walk to a Node and call it. File is an open file.
//
// Lock order of the namespace, outside of what package inode says about files:
//
//	inode_shrink                     writes data back and commits, for want of memory
//	snapshot_lock                    a snapshot is being made: of writes in place, which only try
//	s_vfs_rename_mutex               rename between two directories
//	  i_rwsem_dir                    parent, second parent, child directory, second child directory
//	    subvol_sem                   shared: a subvolume is made; alone: the name of one is taken
//	    i_rwsem                      a file whose name changes; two: lower ino first
//	      inode_new                  wait for an inode that another task is reading
//	      subvol_open                open a subvolume: it reads the root tree and its own
//	      transaction                one handle per operation, after all locks
//	        inode_hook               commit only: the items of dirty inodes
//	          tree_*
//	            inode_cache          leaf
//
// Invariants:
//   - an inode is in memory at most once;
//   - an inode without names has an orphan item until its own items are gone, in every committed
//     state.
//
// Model: fs/btrfs/inode.c and super.c, and what the VFS does around them. Difference: no dentry
// cache.
package fs

import (
	"errors"
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/data/fileread"
	"btrlab/internal/data/finish"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/data/treelog"
	"btrlab/internal/data/writeback"
	"btrlab/internal/data/zero"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/lock"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// FS is an open image.
type FS struct {
	opt    Options
	vols   *volumes.Volumes
	trans  *transaction.Manager
	store  *fstree.Store
	logs   *treelog.Logs
	cache  *pagecache.Cache
	data   *inode.FS
	read   *fileread.Reader
	finish *finish.Finisher
	engine *writeback.Engine // nil when the image is open read-only and nothing is read yet
	env    iopath.Env        // for the rooms of iopath
	steps  steps

	inodes   icache
	subvolMu lock.Mutex         // class subvol_open; protects subvols, held while one is opened
	subvols  map[uint64]*subvol // the table of roots: the open subvolumes, by tree
	// subvolSem (class subvol_sem): nobody makes a subvolume in one that is asked whether it has
	// any, and then deleted.
	subvolSem lock.RWSem
	top       *Node      // the top directory of the top-level subvolume
	base      *Node      // where paths begin: top, or the top directory of another subvolume
	renameMu  lock.Mutex // class s_vfs_rename_mutex
}

// flushers is the door of spaceinfo: what can win space.
type flushers struct{ f *FS }

func (d flushers) FlushDelalloc(t *sched.Task, bytes uint64, wait bool) {
	d.f.engine.FlushDelalloc(t, bytes, wait)
}
func (d flushers) CommitTransaction(t *sched.Task) error { return d.f.Commit(t) }
func (d flushers) AllocChunk(t *sched.Task, typ uint64) (bool, error) {
	return d.f.trans.Extents.AllocChunk(t, typ)
}
func (d flushers) Preempt(t *sched.Task)   { d.f.engine.Kick(t) }
func (d flushers) DirtyDelalloc() uint64   { return d.f.data.DelallocBytes() }
func (d flushers) FreeDeviceBytes() uint64 { return d.f.vols.FreeDeviceBytes() }

// wire makes the data side and fills the doors of the packages below.
func (f *FS) wire(t *sched.Task) {
	bg, hard := f.opt.DirtyBackground, f.opt.DirtyLimit
	if hard == 0 {
		hard = DefaultDirtyLimit
	}
	if bg == 0 {
		bg = hard / 2
	}
	f.cache = pagecache.NewCache(f.opt.CacheLimit, bg, hard)
	if f.opt.NoPayload {
		f.cache.ShareData(&blockdev.NoPayload)
		f.env.NoPayload = true
	}
	f.data = inode.NewFS(f.trans.Space, f.cache)
	f.data.Csum = f.store.CsumType()
	if f.store.Holes {
		f.data.Holes = zero.Holes{Store: f.store, Trans: f.trans}.Fill
	}
	f.data.Pool.OnAttachedDone(f.trans.OrderedDone)
	f.data.Quota = f.trans.Quota
	limit := f.opt.CacheInodes
	if limit == 0 {
		limit = DefaultCacheInodes
	}
	f.inodes.init(limit)
	f.renameMu.Init(classRename)
	f.subvolMu.Init(classSubvol)
	f.subvolSem.Init(classSubvolSem)
	workers := f.opt.EndioWorkers
	if workers == 0 {
		workers = DefaultEndioWorkers
	}
	pl := place.New(f.store, f.trans.Extents)
	f.read = fileread.New(f.data, pl, f.store, f.vols)
	f.read.BadCopy = f.opt.BadCopy
	f.finish = finish.New(t, finish.Config{
		FS: f.data, Items: f.store, Extents: f.trans.Extents, Workers: workers, Newest: f.opt.EndioNewest,
		Join: func(t *sched.Task, bytes uint64) (*transaction.Handle, error) {
			h, err := f.trans.JoinReserved(t, bytes)
			if err != nil {
				return nil, err
			}
			return h, nil
		},
	})
	f.engine = writeback.New(t, writeback.Config{FS: f.data, Place: pl, Finish: f.finish, Store: f.vols, Tight: f.trans.Space.Metadata().Tight})
	f.env.Read, f.env.Writeback, f.env.Store, f.env.Trans, f.env.Now = f.read, f.engine, f.store, f.trans, f.now
	f.env.Finish, f.env.Device, f.env.Logs = f.finish, f.vols, f.logs
	f.setPolicy(f.opt.Policy)
	if f.opt.ReadOnly {
		return
	}
	f.trans.Space.SetFlushers(flushers{f})
	f.trans.Quota.SetFlusher(flushers{f})
	f.trans.Extents.SetCsums(f.store)
	f.trans.Extents.SetFirstFit(f.opt.FirstFit)
	f.trans.OnCommit(f.writeInodes)
	lab := f.opt.Lab.Under(f.opt.Policy)
	f.logs.Configure(treelog.LogConfig{Trans: f.trans, Store: f.store, InMemory: f.inMemory, Item: lab.Item, Forget: f.opt.NoPayload,
		SmallLeaf: lab.SmallLeaf})
	f.trans.OnSettled(f.logs.Free)
}

// startCommitter starts the task that commits by the clock, if there is to be one.
func (f *FS) startCommitter(t *sched.Task) {
	if f.opt.CommitInterval > 0 && !f.opt.ReadOnly {
		f.trans.StartCommitter(t, f.opt.CommitInterval)
	}
}

// stop ends the tasks. The committer is first: its commit may wait for the others.
func (f *FS) stop(t *sched.Task) {
	f.trans.StopCommitter(t)
	f.engine.Close(t)
	f.finish.Close(t)
}

// Pause ends the tasks of the file system without writing anything back; nothing else runs. Resume
// starts them again, on another runtime if need be. The explorer opens an image once and runs it
// many times.
func (f *FS) Pause(t *sched.Task) { f.stop(t) }

// Resume ends Pause.
func (f *FS) Resume(t *sched.Task) {
	f.finish.Restart(t)
	f.engine.Restart(t)
	f.startCommitter(t)
}

// Commit commits the running transaction, and writes no data back: what is dirty in the page cache
// stays so.
func (f *FS) Commit(t *sched.Task) error { return f.trans.Commit(t) }

// Devices returns the devices of the image, without those that are missing.
func (f *FS) Devices() (list []blockdev.Device) {
	for _, d := range f.vols.Devices() {
		if !d.Missing() {
			list = append(list, d.Device)
		}
	}
	return list
}

// CacheInodes is the number of inodes in memory above which unused ones are dropped. Those that
// callers have references to count and are not dropped.
func (f *FS) CacheInodes() int { return int(f.inodes.limit) }

// Policy is the locking policy in force.
func (f *FS) Policy() *policy.Policy { return f.env.Policy() }

// SetPolicy changes the locking policy. The caller has no operation in flight.
func (f *FS) SetPolicy(t *sched.Task, p *policy.Policy) {
	f.setPolicy(p)
	for _, n := range f.nodes(t) {
		f.setLockMode(n)
	}
	f.remakeLabs(t)
}

// setPolicy changes the policy for what is asked next.
func (f *FS) setPolicy(p *policy.Policy) {
	f.env.SetPolicy(p)
	f.data.Logging.Store(p.Has(policy.FsyncLog))
	f.data.Remember.Store(p.Has(policy.NocowRemembered))
	f.logs.Follow(p.Set)
	f.engine.SetBounce(p.Has(policy.WritebackBounce))
	f.useLab(p)
	f.museum(p)
}

// SetReclaim says that memory is short, if reclaim is not nil: an allocation that a request needs
// calls it first, and it may sleep. It is for studies.
func (f *FS) SetReclaim(reclaim func(t *sched.Task)) { f.env.Reclaim = reclaim }

// SetLab changes Options.Lab, but for what is made once: the range locks of inodes that are there,
// and Item. The caller has no operation in flight.
func (f *FS) SetLab(t *sched.Task, lab iopath.Lab) {
	f.opt.Lab = lab
	f.useLab(f.env.Policy())
	f.remakeLabs(t)
}

// remakeLabs gives the inodes in memory the policy of files that is in force.
func (f *FS) remakeLabs(t *sched.Task) {
	for _, n := range f.nodes(t) {
		n.ip.SetLab()
	}
}

// useLab puts the functions of Options.Lab in their places, or those of p where it is somebody's
// own.
func (f *FS) useLab(p *policy.Policy) {
	lab := f.opt.Lab.Under(p)
	f.data.NewRangeLocker = lab.RangeLock
	f.env.Lab, f.data.NewLab = lab, nil
	f.engine.SetLab(lab.Writeback)
	if lab.File != nil {
		f.data.NewLab = func() any { return lab.File() }
	}
}

// SetDirtyLimits changes the limits of Options, in bytes.
func (f *FS) SetDirtyLimits(background, hard int64) { f.cache.BDI.SetLimits(background, hard) }

func (f *FS) now() format.Timespec { return format.TimespecOf(f.opt.Now()) }

// writable is EROFS when nothing can be changed: the image is open for reading, or a transaction
// was aborted.
func (f *FS) writable() error {
	if f.opt.ReadOnly || f.trans.Broken() {
		return errno.EROFS
	}
	return nil
}

// end closes a handle; err, if any, comes first.
func (f *FS) end(t *sched.Task, h *transaction.Handle, err error) error {
	if e := h.End(t); err == nil {
		err = e
	}
	return err
}

// abort gives the transaction up because of err, in the middle of a change of several items, and
// closes the handle.
func (f *FS) abort(t *sched.Task, h *transaction.Handle, err error) error {
	h.Abort(t, err)
	return f.end(t, h, err)
}

// Sync writes back all dirty data and commits. A data error is returned after the commit.
func (f *FS) Sync(t *sched.Task) error {
	if f.opt.ReadOnly {
		return nil
	}
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_sync_fs"})
	}
	err := f.engine.SyncAll(t)
	if late := f.inodes.failed.Swap(nil); late != nil && err == nil {
		err = *late
	}
	// Data that could not be written is no reason to lose what could.
	if cerr := f.commit(t); cerr != nil {
		return cerr
	}
	return opError("sync", "", err)
}

// commit commits the running transaction. Dirty inodes get one that takes their items: the running
// one may be past that, see package fsync.
func (f *FS) commit(t *sched.Task) error {
	if f.data.DirtyCount(t) > 0 {
		h, err := f.trans.Join(t)
		if err == nil {
			err = h.End(t)
		}
		if err != nil {
			return errors.Join(err, f.trans.Aborted(t))
		}
	}
	return f.trans.Commit(t)
}

// Close writes back everything, commits and stops the tasks; the device stays open. The FS is dead
// afterwards, also when an error is returned.
func (f *FS) Close(t *sched.Task) error {
	err := f.Sync(t)
	f.putBase(t)
	f.put(t, f.top)
	f.stop(t)
	if f.opt.CheckQuiescence && !f.opt.ReadOnly && err == nil {
		f.CheckQuiescent(t)
	}
	return err
}

// ErrShutdown is why a file system is broken that Shutdown has ended.
var ErrShutdown = errors.New("it was shut down")

// Shutdown ends the file system as a power cut does: nothing more becomes durable, and the next
// open finds the last commit and the log. Sync and Close then return an error that is ErrShutdown.
// Any task may call it at any time.
//
// Models btrfs_force_shutdown().
func (f *FS) Shutdown(t *sched.Task) { f.trans.Shutdown(t, ErrShutdown) }

// Flush starts writeback of a file and does not wait for its end. Models sync_file_range() with
// SYNC_FILE_RANGE_WRITE.
func (f *FS) Flush(t *sched.Task, x *File) error {
	return f.engine.WritePages(t, x.n.ip, 0, pagecache.MaxFileEnd, true)
}

// CheckQuiescent panics unless every counter is at rest after a Sync with nothing else in flight
// (labs/reference 11.1).
func (f *FS) CheckQuiescent(t *sched.Task) {
	for _, n := range f.nodes(t) {
		n.ip.CheckQuiescent(t)
	}
	f.data.CheckQuiescent(t)
	f.trans.Quota.CheckQuiescent(t)
	if d := f.trans.Space.Data().Usage(t); !f.trans.Space.Mixed() && (d.MayUse != 0 || d.Reserved != 0 || d.Pinned != 0) {
		panic(fmt.Sprintf("fs: at rest data has may_use=%d reserved=%d pinned=%d", d.MayUse, d.Reserved, d.Pinned))
	}
	m, global := f.trans.Space.Metadata().Usage(t), f.trans.Space.Global.Reserved(t)
	if m.MayUse != global || m.Reserved != 0 || m.Pinned != 0 {
		panic(fmt.Sprintf("fs: at rest metadata has may_use=%d (global reserve %d) reserved=%d pinned=%d", m.MayUse, global, m.Reserved, m.Pinned))
	}
}

// SetCompress sets how file data is compressed that is written back from now on; what is dirty is
// synced before. Of a file that is NOCOW, preallocated or marked NOCOMPRESS nothing is compressed,
// and what does not save a sector is not; one with the property btrfs.compression is compressed as
// that says. Models mount -o remount,compress-force.
func (f *FS) SetCompress(t *sched.Task, m compress.Method) error {
	if err := f.writable(); err != nil {
		return err
	}
	if err := f.Sync(t); err != nil {
		return err
	}
	if bits := m.Incompat(); bits != 0 {
		h, err := f.trans.Start(t, 1)
		if err != nil {
			return err
		}
		f.trans.AddIncompat(bits)
		if err := f.end(t, h, nil); err != nil {
			return err
		}
	}
	f.engine.SetCompress(m)
	return nil
}

// DropCaches drops the clean pages of every file.
func (f *FS) DropCaches(t *sched.Task) { f.cache.DropClean(t) }

// Super is a copy of the superblock as last committed.
func (f *FS) Super(t *sched.Task) format.Super { return *f.trans.Super(t) }

// Statfs gives the space accounting. An image that is open read-only has its chunks and its
// superblock only.
func (f *FS) Statfs(t *sched.Task) Statfs {
	sb := f.trans.Super(t)
	s := Statfs{
		Total: sb.TotalBytes, Used: sb.BytesUsed, Unallocated: f.vols.FreeDeviceBytes(), Generation: sb.Generation,
		Label: sb.Label, FSID: sb.FSID, NodeSize: sb.NodeSize, SectorSize: sb.SectorSize,
		Files: uint64(f.inodes.count.Load()), CacheLen: f.cache.Bytes(),
		DirtyBytes: f.cache.BDI.Dirty.Load() << pagecache.PageShift, WritebackBytes: f.cache.BDI.Writeback.Load() << pagecache.PageShift,
	}
	s.DirtyMetadata = f.trans.DirtyBytes(t)
	if f.opt.ReadOnly {
		for _, c := range f.vols.Chunks() {
			switch {
			case c.Chunk.Type&format.BlockGroupData != 0:
				s.DataTotal += c.Chunk.Length
			case c.Chunk.Type&format.BlockGroupSystem != 0:
				s.SystemTotal += c.Chunk.Length
			default:
				s.MetadataTotal += c.Chunk.Length
			}
		}
		s.Free = s.Total - min(s.Total, s.Used)
		return s
	}
	d, m, y := f.trans.Space.Data().Usage(t), f.trans.Space.Metadata().Usage(t), f.trans.Space.System().Usage(t)
	if f.trans.Space.Mixed() {
		m = spaceinfo.Usage{} // d has both
	}
	s.DataTotal, s.DataUsed, s.DataMayUse, s.DataPinned, s.DataReserved = d.Total, d.Used, d.MayUse, d.Pinned, d.Reserved
	s.MetadataTotal, s.MetadataUsed, s.MetadataMayUse, s.MetadataPinned, s.MetadataReserved = m.Total, m.Used, m.MayUse, m.Pinned, m.Reserved
	s.SystemTotal, s.SystemUsed = y.Total, y.Used
	s.Used = d.Used + m.Used + y.Used
	copies := format.ProfileOf(format.BestProfile(f.vols.Profiles(format.BlockGroupData), f.vols.Writable())).Copies
	s.Free = s.Unallocated/uint64(copies) + d.Total - min(d.Total, d.Used+d.Reserved+d.MayUse+d.Readonly)
	return s
}
