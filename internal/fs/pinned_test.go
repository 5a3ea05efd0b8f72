package fs_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// atFlush calls hook once, before the next flush goes to the device, in the task that flushes: the
// committer.
type atFlush struct {
	blockdev.Device
	hook atomic.Pointer[func(t *sched.Task)]
}

func (d *atFlush) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op == blockdev.OpFlush {
		if f := d.hook.Swap(nil); f != nil {
			(*f)(t)
		}
	}
	d.Device.Submit(t, b)
}

// churn is files that are rewritten again and again. Every 8 bytes of a file say which file, which
// version and which block.
type churn struct {
	x        *fstest.Fixture
	files    []*fs.File
	versions []uint32
}

const churnBlocks = 24 // of 4 KiB, per file

func newChurn(x *fstest.Fixture, n int) *churn {
	c := &churn{x: x, versions: make([]uint32, n)}
	for i := range n {
		c.files = append(c.files, x.Create(fmt.Sprintf("/c%d", i)))
	}
	return c
}

// rewrite writes the next version of file i and brings it to the device. Nothing of it is
// committed.
func (c *churn) rewrite(t *sched.Task, i int) {
	c.versions[i]++
	p := make([]byte, churnBlocks*4096)
	for b := range churnBlocks {
		fstest.Stamp(p[b*4096:(b+1)*4096], uint64(i)<<56|uint64(c.versions[i])<<24|uint64(b))
	}
	if _, err := c.files[i].WriteAt(t, p, 0); err != nil {
		c.x.Error(err)
	}
	if err := c.x.FS.Flush(t, c.files[i]); err != nil {
		c.x.Error(err)
	}
	for c.files[i].Inode().Pages.WritebackPages(t) > 0 {
		runtime.Gosched()
	}
}

// check holds an image against the versions that a commit has promised: every block is of its file
// and place, and as new as promised.
func (c *churn) check(t *sched.Task, m dm.Image, promised []uint32) error {
	r, err := check.Check(t, m.Dev, check.Options{})
	if err != nil {
		return err
	}
	if !r.Clean {
		return fmt.Errorf("%d findings, first %v", len(r.Findings), r.Findings[0])
	}
	f, err := fs.Open(t, []blockdev.Device{m.Dev}, fs.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	have, err := fstest.ReadTree(t, f)
	if err != nil {
		return err
	}
	for i, v := range promised {
		p := have[fmt.Sprintf("c%d", i)]
		if v > 0 && len(p) != churnBlocks*4096 {
			return fmt.Errorf("c%d has %d bytes, want %d", i, len(p), churnBlocks*4096)
		}
		for at := 0; at+8 <= len(p); at += 8 {
			w := binary.LittleEndian.Uint64(p[at:])
			if b := p[at:]; at%4096 == 0 && len(b) >= 4096 && bytes.Equal(b[8:4096], b[:4096-8]) {
				at += 4096 - 8 // the same word all over the block
			}
			if w>>56 != uint64(i) || w&0xffffff != uint64(at/4096) || uint32(w>>24) < v {
				return fmt.Errorf("c%d has %#x at %d, want file %d, block %d, version %d or later", i, w, at, i, at/4096, v)
			}
		}
	}
	return f.Close(t)
}

// TestPinned: what a commit frees may not be used again before its superblock is on the device, or
// a crash until then finds the previous commit, which points at it, overwritten. The allocator
// takes the lowest free space first, so that it is used at once; and writers go on while the commit
// is on its way: at the first flush, when the tree blocks are written and the superblock is not, or
// at the second, when the superblock may be on the device.
//
// A crash at any flush, with any part of what is in flight, leaves an image that checks clean and
// holds what the last commit promised. That includes crashes inside each commit: the test counts
// them.
func TestPinned(t *testing.T) {
	const commits = 6
	for _, at := range []int{1, 2} {
		t.Run(fmt.Sprintf("flush=%d", at), func(t *testing.T) {
			var log *dm.LogWrites
			gate := &atFlush{}
			x := fstest.New(t, fstest.Size(64<<20), fstest.FSOptions(func(o *fs.Options) { o.FirstFit = true }),
				fstest.Wrap(func(dev blockdev.Device) blockdev.Device {
					log = dm.NewLogWrites(dev, dev.(*blockdev.Memory).Snapshot())
					gate.Device = log
					return gate
				}))
			c := newChurn(x, 4)
			promised := [][]uint32{make([]uint32, len(c.files))}
			log.Mark(x.T, "0")
			for k := 1; k <= commits; k++ {
				fstest.Parallel(x.T, len(c.files), c.rewrite)
				next := append([]uint32(nil), c.versions...)
				during := func(t *sched.Task) { fstest.Parallel(t, len(c.files), c.rewrite) }
				if at == 2 {
					inner := during
					during = func(*sched.Task) { gate.hook.Store(&inner) }
				}
				gate.hook.Store(&during)
				x.Must(x.FS.Sync(x.T))
				if gate.hook.Load() != nil {
					t.Fatalf("commit %d made fewer than %d flushes", k, at)
				}
				promised = append(promised, next)
				log.Mark(x.T, strconv.Itoa(k))
			}
			inside := 0
			opt := dm.ImageOptions{SectorBytes: format.SectorSize, Subsets: 3, Seed: 5}
			x.Must(log.Images(x.T, opt, func(t *sched.Task, m dm.Image) error {
				k, _ := strconv.Atoi(m.Mark)
				if m.Pending > 0 && k < commits {
					inside++
				}
				return c.check(t, m, promised[k])
			}))
			if inside < 4*commits {
				t.Errorf("only %d crash images inside %d commits", inside, commits)
			}
			for _, f := range c.files {
				x.Must(f.Close(x.T))
			}
		})
	}
}
