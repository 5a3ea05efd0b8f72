package rescue_test

import (
	"bytes"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

func logged(t *testing.T) (*blockdev.Memory, *sched.Task) {
	x := fstest.New(t, fstest.Image("../../data/treelog/testdata/log/extents.blocks.gz"), fstest.NoCheck(), fstest.FSOptions(func(o *fs.Options) { o.ReadOnly = true }))
	return x.Dev.(*blockdev.Memory).Snapshot(), x.T
}

func super(t *testing.T, tk *sched.Task, dev blockdev.Device, i int) (b []byte, s format.Super) {
	t.Helper()
	b = make([]byte, format.SuperSize)
	if err := blockdev.Read(tk, dev, b, int64(format.SuperMirror(i))); err != nil {
		t.Fatal(err)
	}
	s.Decode(b)
	return b, s
}

// TestZeroLog: the log goes and nothing else changes: no other byte of the superblocks, and the
// image is its last commit, which opens.
func TestZeroLog(t *testing.T) {
	dev, tk := logged(t)
	before, s := super(t, tk, dev, 0)
	// The kernel points at a log from the primary only; another tool may do so from a copy.
	b, copied := super(t, tk, dev, 1)
	copied.LogRoot, copied.LogRootLevel = s.LogRoot, 1
	copied.Encode(b)
	if err := blockdev.Write(tk, dev, b, int64(format.SuperMirror(1))); err != nil {
		t.Fatal(err)
	}
	bytenr, level, err := rescue.ZeroLog(tk, dev)
	if err != nil || bytenr != s.LogRoot || level != s.LogRootLevel || bytenr == 0 {
		t.Fatalf("have %d, %d, %v, want %d, %d", bytenr, level, err, s.LogRoot, s.LogRootLevel)
	}
	for i := range 2 {
		if _, s := super(t, tk, dev, i); s.LogRoot != 0 || s.LogRootLevel != 0 {
			t.Errorf("copy %d has log_root %d level %d", i, s.LogRoot, s.LogRootLevel)
		}
	}
	after, _ := super(t, tk, dev, 0)
	format.ClearLog(before)
	if !bytes.Equal(before, after) {
		t.Error("other bytes of the superblock have changed")
	}
	if r, err := check.Check(tk, dev, check.Options{}); err != nil || !r.Clean || len(r.Notes) > 0 {
		t.Errorf("check: %v %v %v", err, r.Findings, r.Notes)
	}
	x, err := fs.Open(tk, []blockdev.Device{dev}, fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(tk); err != nil {
		t.Error(err)
	}
}

// TestZeroLogWrites: without a log nothing is written; a superblock that is bad is left as it is; a
// copy that is bad or of another generation, too; a device that fails is an error.
func TestZeroLogWrites(t *testing.T) {
	dev, tk := logged(t)
	plain := fstest.New(t)
	plain.Must(plain.FS.Sync(plain.T))
	writes := dm.NewFlakey(plain.Dev, dm.Fault{Op: blockdev.OpWrite, Nth: 1, On: true})
	if bytenr, _, err := rescue.ZeroLog(plain.T, writes); bytenr != 0 || err != nil {
		t.Errorf("without a log: %d, %v", bytenr, err)
	}
	if _, _, err := rescue.ZeroLog(tk, dm.NewFlakey(dev, dm.Fault{Op: blockdev.OpWrite, Nth: 1, On: true})); err == nil || !strings.Contains(err.Error(), "superblock at 65536") {
		t.Errorf("a write that fails: %v", err)
	}
	if _, _, err := rescue.ZeroLog(tk, dm.NewFlakey(dev.Snapshot(), dm.Fault{Op: blockdev.OpFlush, Nth: 1, On: true})); err == nil {
		t.Error("a flush that fails is no error")
	}
	b, s := super(t, tk, dev, 1)
	s.Generation++
	_, primary := super(t, tk, dev, 0)
	s.LogRoot = primary.LogRoot
	s.Encode(b)
	if err := blockdev.Write(tk, dev, b, int64(format.SuperMirror(1))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := rescue.ZeroLog(tk, dev); err != nil {
		t.Fatal(err)
	}
	if after, _ := super(t, tk, dev, 1); !bytes.Equal(after, b) {
		t.Error("a copy of another generation has changed")
	}
	bad, _ := super(t, tk, dev, 0)
	bad[200] ^= 1
	if err := blockdev.Write(tk, dev, bad, format.SuperOffset); err != nil {
		t.Fatal(err)
	}
	if _, _, err := rescue.ZeroLog(tk, dev); err == nil || !strings.Contains(err.Error(), "superblock") {
		t.Errorf("a bad superblock: %v", err)
	}
}
