package transaction_test

import (
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// supers reads the copies of the superblock that the device has room for.
func supers(tb testing.TB, t *sched.Task, dev blockdev.Device) (list []format.Super) {
	tb.Helper()
	for i := range format.SuperMirrorMax {
		off := format.SuperMirror(i)
		if int64(off)+format.SuperSize >= dev.Size() {
			break
		}
		b := make([]byte, format.SuperSize)
		if err := blockdev.Read(t, dev, b, int64(off)); err != nil {
			tb.Fatal(err)
		}
		if !format.SuperCsumOK(b) {
			tb.Errorf("copy %d has a bad checksum", i)
		}
		var sb format.Super
		sb.Decode(b)
		list = append(list, sb)
	}
	return list
}

// TestWriteSuper writes a superblock alone between two commits, as an fsync does that points the
// primary at a log tree. Only the primary changes, and its generation stays: it points at the trees
// of the last commit. The next commit takes the address back in every copy. A superblock older than
// the one on the device must not get there.
func TestWriteSuper(tt *testing.T) {
	t := sched.NewTask("test")
	dev := newImage(tt, t, 256<<20)
	m := open(tt, t, dev)
	makeInodes(tt, t, m, 3)
	if err := m.Commit(t); err != nil {
		tt.Fatal(err)
	}
	before := supers(tt, t, dev)
	if len(before) != 2 || before[0].Generation != before[1].Generation || before[0].Generation != m.Generation(t) {
		tt.Fatalf("after a commit: %d copies, generations %d and %d, want 2 of %d", len(before), before[0].Generation, before[1].Generation, m.Generation(t))
	}

	sb := *m.Super(t)
	sb.LogRoot, sb.LogRootLevel = 30408704, 1
	if err := m.WriteSuper(t, &sb, 1); err != nil {
		tt.Fatal(err)
	}
	have := supers(tt, t, dev)
	if have[0].LogRoot != sb.LogRoot || have[0].LogRootLevel != 1 || have[0].Generation != before[0].Generation || have[0].Root != before[0].Root {
		tt.Errorf("primary: log root %d level %d generation %d root %d", have[0].LogRoot, have[0].LogRootLevel, have[0].Generation, have[0].Root)
	}
	if have[1].LogRoot != 0 || have[1].Generation != before[1].Generation {
		tt.Errorf("copy 1 changed: log root %d generation %d", have[1].LogRoot, have[1].Generation)
	}
	lockdep.AssertNone(t)

	m = open(tt, t, dev) // a mount finds the log root in the primary
	if m.Super(t).LogRoot != sb.LogRoot {
		tt.Errorf("the primary says log root %d", m.Super(t).LogRoot)
	}
	h, err := m.Join(t)
	if err != nil {
		tt.Fatal(err)
	}
	if err := h.End(t); err != nil {
		tt.Fatal(err)
	}
	if err := m.Commit(t); err != nil {
		tt.Fatal(err)
	}
	for i, s := range supers(tt, t, dev) {
		if s.LogRoot != 0 || s.LogRootLevel != 0 || s.Generation != before[0].Generation+1 {
			tt.Errorf("copy %d after the next commit: log root %d level %d generation %d", i, s.LogRoot, s.LogRootLevel, s.Generation)
		}
	}

	func() {
		defer func() {
			if recover() == nil {
				tt.Error("an old superblock was written over a new one")
			}
		}()
		_ = m.WriteSuper(t, &sb, 1)
	}()
	if s := supers(tt, t, dev)[0]; s.Generation != before[0].Generation+1 {
		tt.Errorf("the device has generation %d", s.Generation)
	}
}
