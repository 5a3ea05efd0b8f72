package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestDirectErrorInTheMiddle: one of the three bios of a direct write fails, each in turn. The
// write is EIO and names the place; so is the next fsync. In place the other parts are on the
// device; elsewhere the file has nothing of the write. Nothing is reserved, the image is clean, and
// the same write goes well afterwards.
func TestDirectErrorInTheMiddle(t *testing.T) {
	fstest.OneTask(t)
	const part, parts = 1 << 20, 3
	for _, c := range fstest.DirectFiles {
		t.Run(c.Name, func(t *testing.T) {
			var dev *dm.Flakey
			x := fstest.New(t, fstest.Policy("modern!DIO_CSUM_BUFFERED"), fstest.Faults(&dev))
			for i := range 2 * parts {
				queued, bad := i >= parts, i%parts
				f := x.Create(fmt.Sprintf("/f%d", i))
				x.Must(f.SetFlags(x.T, c.Flags))
				if c.Prealloc {
					x.Must(f.Fallocate(x.T, 0, 0, parts*part))
				}
				fstest.Must(f.WriteDirect(x.T, bytes.Repeat([]byte{1}, parts*part), 0))
				x.Must(x.FS.Sync(x.T))
				p := bytes.Repeat([]byte{2}, parts*part)
				var r fstest.Result
				write := func() (int, error) {
					if !queued {
						return f.WriteDirect(x.T, p, 0)
					}
					r.Submit(x.T, f, kiocb.Request{Flags: kiocb.Direct}, p)
					r.Wait()
					return r.N, r.Err
				}
				dev.Set(dm.Fault{Op: blockdev.OpWrite, Nth: dev.Count(blockdev.OpWrite) + 1 + int64(bad)})
				n, err := write()
				dev.Set()
				if n != 0 || !errors.Is(err, errno.EIO) || !strings.Contains(err.Error(), fmt.Sprintf("at %d:", bad*part)) || queued && r.Calls.Load() != 1 {
					t.Errorf("bio %d fails, queued %v: have %d, %v want 0, EIO at %d", bad, queued, n, err, bad*part)
				}
				if err := f.Fsync(x.T); !errors.Is(err, errno.EIO) {
					t.Errorf("the first fsync after it: have %v want EIO", err)
				}
				x.Must(f.Fsync(x.T))
				x.Must(x.FS.Sync(x.T))
				f.Inode().CheckQuiescent(x.T)
				want := bytes.Repeat([]byte{1}, parts*part)
				if f.Inode().Nocow() {
					copy(want, p)
					copy(want[bad*part:], bytes.Repeat([]byte{1}, part))
				}
				if have := fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, parts*part), 0); !bytes.Equal(have, want) {
					t.Errorf("bio %d fails, queued %v: the file differs from byte %d on", bad, queued, fstest.Differs(have, want))
				}
				r = fstest.Result{}
				if n, err := write(); n != len(p) || err != nil {
					t.Errorf("the write after it: %d, %v", n, err)
				}
				if have := fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, parts*part), 0); !bytes.Equal(have, p) {
					t.Errorf("after it the file differs from byte %d on", fstest.Differs(have, p))
				}
				x.Must(f.Close(x.T))
				x.Must(x.FS.Unlink(x.T, fmt.Sprintf("/f%d", i)))
			}
		})
	}
}

// shortWrites are writes that need space at different places. The file is NOCOW unless flags say
// otherwise, its bytes are 1.
var shortWrites = []struct {
	name   string
	flags  uint64
	layout func(x *fstest.Fixture, f *fs.File)
	off, n int
}{
	{"in place", fstest.Nocow, written(64 << 10), 16 << 10, 16 << 10},
	{"two extents", fstest.Nocow, func(x *fstest.Fixture, f *fs.File) {
		written(32<<10)(x, f)
		x.WriteAt(f, bytes.Repeat([]byte{1}, 32<<10), 32<<10)
	}, 0, 64 << 10},
	{"written and a hole", fstest.Nocow, func(x *fstest.Fixture, f *fs.File) {
		written(32<<10)(x, f)
		x.Must(f.Truncate(x.T, 64<<10))
	}, 16 << 10, 32 << 10},
	{"hole", fstest.Nocow, func(x *fstest.Fixture, f *fs.File) { x.Must(f.Truncate(x.T, 64<<10)) }, 16 << 10, 32 << 10},
	{"prealloc", fstest.Nocow, func(x *fstest.Fixture, f *fs.File) { x.Must(f.Fallocate(x.T, 0, 0, 64<<10)) }, 16 << 10, 16 << 10},
	{"beyond EOF", fstest.Nocow, written(10 << 10), 32 << 10, 16 << 10},
	{"copy on write", 0, written(64 << 10), 16 << 10, 32 << 10},
	{"sectors", fstest.Nocow, written(64 << 10), 17 << 10, 1 << 10},
	{"sectors of an unwritten block", fstest.Nocow, func(x *fstest.Fixture, f *fs.File) { x.Must(f.Fallocate(x.T, 0, 0, 64<<10)) }, 17 << 10, 1 << 10},
}

func written(n int) func(x *fstest.Fixture, f *fs.File) {
	return func(x *fstest.Fixture, f *fs.File) {
		x.WriteAt(f, bytes.Repeat([]byte{1}, n), 0)
		x.Must(x.FS.Sync(x.T))
	}
}

// TestShortages: each kind of write on a file system that has so much space left, from nothing on
// in small steps, so that it runs out at each of its places in turn: for data, for metadata, and
// under a quota. A write is done as far as it says and no further, its error is ENOSPC or EDQUOT,
// or EAGAIN with NOWAIT, and it leaves nothing reserved, nothing locked and no snapshot waiting. A
// direct write that cannot go in place after all is ENOSPC under a quota as well, as in Linux.
func TestShortages(t *testing.T) {
	fstest.OneTask(t)
	modes := []struct {
		name   string
		flags  kiocb.Flags
		queued bool
	}{{"direct", kiocb.Direct, false}, {"queued durable", kiocb.Direct | kiocb.DSync, true}, {"direct NOWAIT", kiocb.Direct | kiocb.Nowait, false},
		{"buffered", 0, false}, {"buffered NOWAIT", kiocb.Nowait, false}}
	for _, short := range []struct {
		name  string
		err   error
		steps int
		leave func(x *fstest.Fixture, sp *spaceinfo.Space, step uint64) (end func())
	}{
		{"data", errno.ENOSPC, 6, func(x *fstest.Fixture, sp *spaceinfo.Space, step uint64) func() {
			return fstest.Leave(sched.NewTask("other"), sp.Data(), step*8<<10)
		}},
		{"metadata", errno.ENOSPC, 6, func(x *fstest.Fixture, sp *spaceinfo.Space, step uint64) func() {
			return fstest.Leave(sched.NewTask("other"), sp.Metadata(), step*128<<10)
		}},
		{"quota", errno.EDQUOT, 8, func(x *fstest.Fixture, sp *spaceinfo.Space, step uint64) func() {
			rfer, _ := fstest.Counts(x, format.FS_TREE_OBJECTID)
			x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, rfer+step*16<<10, false, false))
			return func() { x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 0, false, true)) }
		}},
	} {
		for _, spec := range []string{"unaligned-check-first!DIO_CSUM_BUFFERED", "nowait-strict"} {
			t.Run(short.name+"/"+spec, func(t *testing.T) {
				x := fstest.New(t, fstest.Policy(spec), fstest.Size(64<<20), fstest.MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile = "single" }))
				if short.name == "quota" {
					x.Must(x.FS.EnableQuota(x.T))
				} else { // no chunk more
					fill := x.Create("/fill")
					for n := int64(16 << 20); n >= 4096; {
						if err := fill.Fallocate(x.T, 0, int64(fill.Size(x.T)), n); err != nil {
							n /= 2
						}
					}
					x.Must(fill.Close(x.T))
					x.Must(x.FS.Unlink(x.T, "/fill"))
				}
				failed, done := 0, 0
				for _, w := range shortWrites {
					for _, m := range modes {
						what := m.name + " " + w.name
						for step := range short.steps {
							f := x.Create("/f")
							x.Must(f.SetFlags(x.T, w.flags))
							w.layout(x, f)
							x.Must(x.FS.Sync(x.T))
							x.FS.DropCaches(x.T)
							want := x.ReadFile("/f")
							x.FS.DropCaches(x.T)
							ip := f.Inode()
							sp := ip.FS.Space
							data, meta := sp.Data().Usage(x.T).MayUse, sp.Metadata().Usage(x.T).MayUse
							p := bytes.Repeat([]byte{2}, w.n)
							end := short.leave(x, sp, uint64(step))
							var r fstest.Result
							rq := kiocb.Request{Pos: uint64(w.off), Flags: m.flags, File: f}
							if m.queued {
								r.Submit(x.T, f, rq, p)
								r.Wait()
							} else {
								n, err := f.WriteIter(x.T, rq, iopath.Source{Buf: p})
								r.Complete(x.T, n, err)
							}
							end()
							nowait := m.flags&kiocb.Nowait != 0
							switch {
							case r.Err == nil && (r.N == w.n || nowait && r.N > 0):
								done++
							case errors.Is(r.Err, short.err), !nowait && m.flags&kiocb.Direct != 0 && errors.Is(r.Err, errno.ENOSPC), nowait && errors.Is(r.Err, errno.EAGAIN), nowait && errors.Is(r.Err, errno.EOPNOTSUPP):
								failed++
							default:
								t.Errorf("%s, step %d: %d bytes, %v", what, step, r.N, r.Err)
							}
							if wrote := w.off + r.N; r.N > 0 {
								want = append(want, make([]byte, max(0, wrote-len(want)))...)
								copy(want[w.off:], p[:r.N])
							}
							if n := ip.Root.SnapshotLock.Writers(); n != 0 || ip.DIO.Load() != 0 {
								t.Errorf("%s, step %d: %d writers keep snapshots out, dio count %d", what, step, n, ip.DIO.Load())
							}
							fstest.WantWithin(x)
							ip.CheckQuiescent(x.T)
							if d, m := sp.Data().Usage(x.T).MayUse, sp.Metadata().Usage(x.T).MayUse; d != data || m != meta {
								t.Errorf("%s, step %d: data may_use %d, %d before; metadata %d, %d before", what, step, d, data, m, meta)
							}
							x.FS.DropCaches(x.T)
							if have := x.ReadFile("/f"); !bytes.Equal(have, want) {
								t.Errorf("%s, step %d: %d bytes, %v, and the file has %d bytes, want %d%s", what, step, r.N, r.Err, len(have), len(want), fstest.DiffAt(have, want))
							}
							x.Must(f.Close(x.T))
							x.Must(x.FS.Unlink(x.T, "/f"))
						}
					}
				}
				if t.Logf("%d failed, %d done", failed, done); failed < 50 || done < 50 {
					t.Errorf("%d writes failed and %d did not, want 50 of each", failed, done)
				}
			})
		}
	}
}

// TestNowaitCrash: tasks keep direct writes in flight, queued and with NOWAIT, and write through
// the page cache with NOWAIT, in blocks that were written and in preallocated ones, and the file is
// synced after each round. A write that is EAGAIN is made again without NOWAIT, as by a worker.
// After a crash the image is clean, and each block holds what the last fsync has promised or what
// was written since.
func TestNowaitCrash(t *testing.T) {
	need.LongRaced(t)
	const tasks, depth, blocks = 4, 6, 48
	for _, spec := range []string{"nowait-5.19!FSYNC_LOG", "nowait-6.1!FSYNC_LOG", "nowait-6.1", "nowait-strict"} {
		t.Run(spec, func(t *testing.T) {
			var counts [tasks]sched.Counts
			again := 0
			fstest.CrashRounds(t, spec, blocks, 4096, func(x *fstest.Fixture, f *fs.File, n int, wrote func(unit int)) {
				var list [tasks][]int // the blocks of each task, of which it writes depth
				for i := range tasks {
					list[i] = rand.New(rand.NewPCG(uint64(i), uint64(n))).Perm(blocks / tasks)[:depth]
					for _, b := range list[i] {
						wrote(b*tasks + i)
					}
				}
				fstest.Parallel(x.T, tasks, func(tk *sched.Task, i int) {
					tk.Counts = &counts[i]
					var res [depth]fstest.Result
					p := bytes.Repeat([]byte{byte(n + 1)}, 4096)
					for j, b := range list[i] {
						rq := kiocb.Request{Pos: uint64(b*tasks+i) * 4096, Flags: []kiocb.Flags{kiocb.Direct, kiocb.Direct | kiocb.Nowait, kiocb.Nowait}[j%3]}
						if rq.Flags&kiocb.Nowait != 0 {
							got, err := f.WriteIter(tk, rq, iopath.Source{Buf: p})
							if !errors.Is(err, errno.EAGAIN) && !errors.Is(err, errno.EOPNOTSUPP) {
								res[j].Complete(tk, got, err)
								continue
							}
							rq.Flags &^= kiocb.Nowait
						}
						res[j].Submit(tk, f, rq, p)
					}
					for j := range depth {
						if res[j].Wait(); res[j].Err != nil || res[j].N != len(p) {
							t.Errorf("%d bytes, %v", res[j].N, res[j].Err)
						}
					}
				})
			})
			for i := range counts {
				again += int(counts[i].Punts())
			}
			t.Logf("%d writes were EAGAIN", again)
		})
	}
}

// TestRangeShortages: fallocate and truncate on a file system with so much metadata space left,
// from none on. They do all of it or say ENOSPC, after a part of it perhaps; nothing stays
// promised, and a byte is what it was or what the operation makes of it. An error that got lost in
// a loop over the range would make the loop endless.
func TestRangeShortages(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(64<<20), fstest.MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile = "single" }))
	fill := x.Create("/fill") // no chunk more
	for n := int64(16 << 20); n >= 4096; {
		if err := fill.Fallocate(x.T, 0, int64(fill.Size(x.T)), n); err != nil {
			n /= 2
		}
	}
	x.Must(fill.Close(x.T))
	x.Must(x.FS.Unlink(x.T, "/fill"))
	const size, from, to = 256 << 10, 30<<10 + 5, 200<<10 + 7
	for name, op := range map[string]func(f *fs.File) error{
		"punch": func(f *fs.File) error {
			return f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, from, to-from)
		},
		"zero":     func(f *fs.File) error { return f.Fallocate(x.T, fs.FALLOC_FL_ZERO_RANGE, from, to-from) },
		"allocate": func(f *fs.File) error { return f.Fallocate(x.T, 0, size, 64<<10) },
		"truncate": func(f *fs.File) error { return f.Truncate(x.T, from) },
	} {
		failed, done := 0, 0
		for step := range uint64(12) {
			f := x.Create("/f")
			p := bytes.Repeat([]byte{1}, size)
			x.WriteAt(f, p, 0)
			x.Must(x.FS.Sync(x.T))
			x.FS.DropCaches(x.T)
			ip := f.Inode()
			sp := ip.FS.Space
			data, meta := sp.Data().Usage(x.T).MayUse, sp.Metadata().Usage(x.T).MayUse
			end := fstest.Leave(sched.NewTask("other"), sp.Metadata(), step*128<<10)
			err := op(f)
			end()
			x.Must(x.FS.Sync(x.T))
			switch {
			case err == nil:
				done++
			case errors.Is(err, errno.ENOSPC):
				failed++
			default:
				t.Errorf("%s, step %d: %v", name, step, err)
			}
			ip.CheckQuiescent(x.T)
			if d, m := sp.Data().Usage(x.T).MayUse, sp.Metadata().Usage(x.T).MayUse; d != data || m != meta {
				t.Errorf("%s, step %d: data may_use %d, %d before; metadata %d, %d before", name, step, d, data, m, meta)
			}
			x.FS.DropCaches(x.T)
			have := x.ReadFile("/f")
			for i, b := range have {
				inside := i >= from && i < to
				if old := i < size; b != 1 && old && !(inside && (name == "punch" || name == "zero")) || b == 1 && err == nil && inside && (name == "punch" || name == "zero") || b != 0 && !old {
					t.Errorf("%s, step %d, %v: byte %d is %d", name, step, err, i, b)
					break
				}
			}
			if n := len(have); name == "truncate" && err == nil && n != from || name == "punch" && n != size {
				t.Errorf("%s, step %d: %v, and the file has %d bytes", name, step, err, n)
			}
			x.Must(f.Close(x.T))
			x.Must(x.FS.Unlink(x.T, "/f"))
		}
		// A truncate may take what the commit has put by: it gives space back.
		if t.Logf("%s: %d failed, %d done", name, failed, done); failed == 0 && name != "truncate" || done == 0 {
			t.Errorf("%s: %d failed and %d did not, want some of each", name, failed, done)
		}
	}
}
