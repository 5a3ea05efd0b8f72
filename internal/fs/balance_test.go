package fs_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// lived is a file system with what a balance has to keep: files of extents large and small, shared
// by reflinks and snapshots of snapshots, changed after them, with holes, prealloc and compressed
// data. It gives what is in it.
func lived(x *fstest.Fixture, seed uint64) map[string]string {
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range 40 {
		f := x.Create(fmt.Sprintf("/f%d", i))
		b := make([]byte, 1+rng.IntN(300<<10))
		fstest.Random(rng, b)
		x.WriteAt(f, b, int64(rng.IntN(3))*100<<10)
		x.Must(f.Close(x.T))
		if i%10 == 9 {
			x.Must(x.FS.Snapshot(x.T, "/", fmt.Sprintf("/snap%d", i), i%20 == 9))
		}
	}
	for i := range 400 {
		f := x.Create(fmt.Sprintf("/d%d", i))
		x.WriteAt(f, make([]byte, 1+rng.IntN(9000)), 0)
		x.Must(f.Close(x.T))
	}
	for i := 0; i < 40; i += 3 {
		f := x.Open(fmt.Sprintf("/f%d", i))
		b := make([]byte, 1+rng.IntN(20<<10))
		fstest.Random(rng, b)
		x.WriteAt(f, b, int64(rng.IntN(100<<10)))
		x.Must(f.Close(x.T))
	}
	x.Must(x.FS.Sync(x.T))
	return allOf(x)
}

// allOf is every name in the file system with what is there.
func allOf(x *fstest.Fixture) map[string]string { return allIn(x.T, x.FS) }

func allIn(t *sched.Task, f *fs.FS) map[string]string {
	all := map[string]string{}
	var dir func(path string)
	dir = func(path string) {
		for _, e := range fstest.Must(f.ReadDir(t, path)) {
			name := path + "/" + e.Name
			a, err := f.Lstat(t, name)
			if errors.Is(err, errno.ENOENT) {
				continue // a subvolume of what this is a snapshot of
			}
			fstest.NoError(err)
			all[name] = fmt.Sprintf("%o %d %d", a.Mode, a.Size, a.Nlink)
			switch {
			case a.IsDir():
				dir(name)
			case a.IsRegular():
				all[name] += fmt.Sprintf(" %x", sha256.Sum256(fstest.Must(readAll(t, f, name))))
			}
		}
	}
	dir("")
	return all
}

// differs is the first name that the two do not have alike; empty when there is none.
func differs(have, want map[string]string) string {
	for name, w := range want {
		if have[name] != w {
			return fmt.Sprintf("%s: have %q, want %q", name, have[name], w)
		}
	}
	if len(have) != len(want) {
		return fmt.Sprintf("have %d names, want %d", len(have), len(want))
	}
	return ""
}

// Every chunk moves, in every profile, and all that is in the file system stays: the check, which
// shares nothing with the engine, judges references, checksums and free space.
func TestBalance(t *testing.T) {
	fstest.OneTask(t)
	for _, v := range fstest.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			x := fstest.New(t, fstest.Size(400<<20), v.Option)
			want := lived(x, 1)
			before := x.FS.Chunks()
			item := format.BalanceItem{Flags: format.BalanceData | format.BalanceMetadata | format.BalanceSystem}
			moved, err := x.FS.Balance(x.T, &item, nil, nil)
			if err != nil || moved.Chunks != len(before) {
				t.Fatalf("%d chunks of %d, %v", moved.Chunks, len(before), err)
			}
			for _, c := range x.FS.Chunks() {
				for _, old := range before {
					if c.Logical == old.Logical {
						t.Errorf("chunk %d is still there", c.Logical)
					}
				}
			}
			if diff := differs(allOf(x), want); diff != "" {
				t.Error(diff)
			}
			x.Reopen()
			if diff := differs(allOf(x), want); diff != "" {
				t.Error("after an open:", diff)
			}
			f := x.Create("/after")
			x.WriteAt(f, make([]byte, 3<<20), 0)
			x.Must(f.Close(x.T))
		})
	}
}

// The power fails after each write of a balance, which gives metadata another profile: the file
// system is there each time, with all that was in it, and the balance goes on.
func TestBalanceCrash(t *testing.T) {
	need.Long(t)
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(300<<20))
	want := lived(x, 2)
	x.Close()
	mem := x.Dev.(*blockdev.Memory)
	log := dm.NewLogWrites(mem, mem.Snapshot())
	f := fstest.Must(fs.Open(x.T, []blockdev.Device{log}, fs.Options{}))
	item := format.BalanceItem{Flags: format.BalanceData | format.BalanceMetadata | format.BalanceSystem | format.BalanceForce,
		Meta: format.BalanceArgs{Flags: format.BalanceConvert, Target: format.ProfileSingle}}
	moved := fstest.Must(f.Balance(x.T, &item, nil, nil))
	if moved.Chunks < 3 {
		t.Fatalf("%d chunks", moved.Chunks)
	}
	fstest.NoError(f.Close(x.T))
	n, resumed := 0, 0
	fstest.NoError(log.Images(x.T, dm.ImageOptions{SectorBytes: 4096, Subsets: 1, Seed: 1}, func(tk *sched.Task, m dm.Image) error {
		n++
		if found := fstest.Findings(tk, m.Dev); found != "" {
			t.Errorf("%s: %s", m.Name, found)
			return nil
		}
		if n%7 != 0 {
			return nil
		}
		f := fstest.Must(fs.Open(tk, []blockdev.Device{m.Dev}, fs.Options{}))
		_, ok, err := f.BalanceStatus(tk)
		fstest.NoError(err)
		if ok {
			resumed++
			fstest.Must(f.ResumeBalance(tk, nil, nil))
		}
		if diff := differs(allIn(tk, f), want); diff != "" {
			t.Errorf("%s: %s", m.Name, diff)
		}
		fstest.NoError(f.Close(tk))
		if found := fstest.Findings(tk, m.Dev); found != "" {
			t.Errorf("%s, resumed: %s", m.Name, found)
		}
		return nil
	}))
	if n < 50 || resumed < 5 {
		t.Errorf("%d crashes, %d balances resumed", n, resumed)
	}
}
