package fs_test

import (
	"bytes"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// taken is how many bytes of the device may be other than zeros.
func taken(d blockdev.Device) (n int64) {
	for off := int64(0); ; {
		off = blockdev.NextData(d, off)
		if off >= d.Size() {
			return n
		}
		off, n = off+4096, n+4096
	}
}

// What is deleted is given back by the commit that makes it so, and what was free before by a trim,
// which leaves all that is there, and the copies of the superblock.
func TestDiscard(t *testing.T) {
	fstest.OneTask(t)
	for _, profile := range []string{"single", "dup"} {
		t.Run(profile, func(t *testing.T) { discards(t, profile) })
	}
}

func discards(t *testing.T, profile string) {
	x := fstest.New(t, fstest.Size(300<<20), fstest.FSOptions(func(o *fs.Options) { o.Discard = true }),
		fstest.MkfsOptions(func(o *mkfs.Options) { o.DataProfile, o.MetadataProfile = profile, profile }))
	fstest.Must(x.FS.Trim(x.T, 4096))
	p := bytes.Repeat([]byte{7}, 20<<20)
	x.WriteAt(x.Create("/stays"), p[:1<<20], 0)
	x.Must(x.FS.Sync(x.T))
	before := taken(x.Dev)
	f := x.Create("/goes")
	x.WriteAt(f, p, 0)
	x.Must(f.Close(x.T))
	x.Must(x.FS.Sync(x.T))
	if n := taken(x.Dev); n < before+20<<20 {
		t.Fatalf("%d bytes are taken, %d before", n, before)
	}
	x.Must(x.FS.Unlink(x.T, "/goes"))
	x.Must(x.FS.Sync(x.T))
	if n := taken(x.Dev); n > before+1<<20 {
		t.Errorf("%d bytes are taken, %d before", n, before)
	}
	// What a device may have where nothing lies.
	x.Must(blockdev.Write(x.T, x.Dev, p[:8<<20], 200<<20))
	n := fstest.Must(x.FS.Trim(x.T, 4096))
	if n < 200<<20 || n >= 300<<20 {
		t.Errorf("%d bytes trimmed", n)
	}
	if n := taken(x.Dev); n > before+1<<20 {
		t.Errorf("%d bytes are taken after the trim, %d before", n, before)
	}
	spare := make([]byte, format.SuperSize)
	x.Must(blockdev.Read(x.T, x.Dev, spare, int64(format.SuperMirror(1))))
	if format.SuperMagic(spare) != format.Magic {
		t.Error("the spare superblock is gone")
	}
	x.WriteAt(x.Create("/again"), p, 0) // what was trimmed is free
	x.Must(x.FS.Sync(x.T))
	if have := x.ReadFile("/again"); !bytes.Equal(have, p) {
		t.Error("what was written after it is not there")
	}
	if u := x.FS.FreeSpans(x.T); u < n/2-40<<20 {
		t.Errorf("%d bytes are free, %d were trimmed", u, n)
	}
	if have := x.ReadFile("/stays"); !bytes.Equal(have, p[:1<<20]) {
		t.Error("what stays is not there")
	}
}

// Block groups with parity stay as they are, and the others are trimmed.
func TestDiscardParity(t *testing.T) {
	fstest.OneTask(t)
	x := profileOn(t, 3, "raid5", "raid1")
	all := fstest.Must(x.FS.Trim(x.T, 4096))
	x.WriteAt(x.Create("/f"), make([]byte, 1<<20), 0)
	x.Must(x.FS.Sync(x.T))
	n := fstest.Must(x.FS.Trim(x.T, 4096))
	if least := all - 1<<20; n == 0 || n > all || n < least {
		t.Errorf("%d bytes trimmed, want %d to %d", n, least, all)
	}
}

// A device that cannot discard is used as ever, and a trim says so.
func TestDiscardUnsupported(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.FSOptions(func(o *fs.Options) { o.Discard = true }), fstest.Wrap(func(d blockdev.Device) blockdev.Device { return struct{ blockdev.Device }{d} }))
	f := x.Create("/goes")
	x.WriteAt(f, make([]byte, 1<<20), 0)
	x.Must(f.Close(x.T))
	x.Must(x.FS.Unlink(x.T, "/goes"))
	x.Must(x.FS.Sync(x.T))
	if _, err := x.FS.Trim(x.T, 4096); err != errno.EOPNOTSUPP {
		t.Errorf("have %v want %v", err, errno.EOPNOTSUPP)
	}
}

// The power fails after each write and each discard: the last commit is there, whole.
func TestDiscardCrash(t *testing.T) {
	need.Long(t)
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(130<<20))
	x.Close()
	mem := x.Dev.(*blockdev.Memory)
	log := dm.NewLogWrites(mem, mem.Snapshot())
	f := fstest.Must(fs.Open(x.T, []blockdev.Device{log}, fs.Options{Discard: true, FirstFit: true}))
	for i := range 8 {
		name := fmt.Sprintf("/%d", i)
		file := fstest.Must(f.OpenFile(x.T, name, fs.O_RDWR|fs.O_CREAT, 0o644))
		fstest.Must(file.WriteAt(x.T, bytes.Repeat([]byte{byte(i)}, 50000+i*10000), 0))
		if i%2 == 0 {
			fstest.NoError(file.Fsync(x.T))
		}
		fstest.NoError(file.Close(x.T))
		if i > 1 {
			fstest.NoError(f.Unlink(x.T, fmt.Sprintf("/%d", i-2)))
		}
		fstest.NoError(f.Sync(x.T))
	}
	fstest.NoError(f.Close(x.T))
	fstest.NoError(log.Images(x.T, dm.ImageOptions{SectorBytes: 4096, Subsets: 2, Seed: 1}, func(tk *sched.Task, m dm.Image) error {
		if found := fstest.Findings(tk, m.Dev); found != "" {
			t.Errorf("%s: %s", m.Name, found)
		}
		return nil
	}))
}
