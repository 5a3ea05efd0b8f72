package fs_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
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
	for i := range 800 {
		f := x.Create(fmt.Sprintf("/d%d", i))
		x.WriteAt(f, make([]byte, 1+rng.IntN(9000)), 0)
		x.Must(f.Close(x.T))
	}
	x.Must(x.FS.Snapshot(x.T, "/", "/last", false))
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
			// What is shared is still known to be: what changes or goes in one stays in the others.
			for i := 0; i < 40; i += 2 {
				f := x.Open(fmt.Sprintf("/f%d", i))
				x.WriteAt(f, make([]byte, 5000), 4096)
				x.Must(f.Close(x.T))
				want[fmt.Sprintf("/f%d", i)] = ""
				x.Must(x.FS.Unlink(x.T, fmt.Sprintf("/f%d", i+1)))
				want[fmt.Sprintf("/f%d", i+1)] = ""
			}
			want["/last"] = "" // its size
			for i := 0; i < 400; i += 7 {
				x.Must(x.FS.Unlink(x.T, fmt.Sprintf("/last/d%d", i)))
				want[fmt.Sprintf("/last/d%d", i)] = ""
			}
			x.Must(x.FS.Snapshot(x.T, "/snap19", "/again", false))
			x.WriteAt(x.Open("/again/f1"), make([]byte, 5000), 4096)
			x.Must(x.FS.Sync(x.T))
			now := allOf(x)
			for name, w := range want {
				if w != "" && now[name] != w {
					t.Errorf("%s: have %q, want %q", name, now[name], w)
				}
			}
			x.Must(x.FS.DeleteSubvolume(x.T, "/snap9"))
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

// Data whose first copy is bad is copied from the second one, and where no copy is right the
// balance ends with its address, pauses, and nothing is lost.
func TestBalanceBadData(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(300<<20), fstest.NoCheck(), fstest.MkfsOptions(func(o *mkfs.Options) { o.DataProfile = "dup" }))
	want := make([]byte, 300<<10)
	fstest.Random(rand.New(rand.NewPCG(4, 4)), want)
	f := x.Create("/f")
	x.WriteAt(f, want, 0)
	x.Must(f.Close(x.T))
	x.Reopen()
	spoil := func(copies int) (at uint64) {
		f := x.Open("/f")
		at = fstest.Must(f.DiskBytenr(x.T, 8192))
		x.Must(f.Close(x.T))
		for _, c := range x.FS.Chunks() {
			if at < c.Logical || at >= c.End() {
				continue
			}
			for _, s := range c.Chunk.Stripes[:copies] {
				x.Must(blockdev.Write(x.T, x.Dev, make([]byte, 4096), int64(s.Offset+at-c.Logical)))
			}
		}
		return at
	}
	balance := func() error {
		_, err := x.FS.Balance(x.T, &format.BalanceItem{Flags: format.BalanceData}, nil, nil)
		return err
	}
	spoil(1)
	x.Must(balance())
	x.Reopen()
	if have := x.ReadFile("/f"); !bytes.Equal(have, want) {
		t.Errorf("one bad copy: %s", fstest.DiffAt(have, want))
	}
	at := spoil(2)
	if err := balance(); !errors.Is(err, errno.EIO) || !strings.Contains(err.Error(), fmt.Sprintf("data at %d, bad csum in every copy", at)) {
		t.Errorf("two bad copies: %v", err)
	}
	if _, ok, err := x.FS.BalanceStatus(x.T); err != nil || !ok {
		t.Errorf("the balance is noted: %v, %v", ok, err)
	}
	if err := balance(); !errors.Is(err, errno.EBUSY) {
		t.Errorf("a second balance: %v", err)
	}
	x.Must(x.FS.CancelBalance(x.T))
	x.WriteAt(x.Create("/g"), want, 0)
}

// A feature of the superblock that a profile asks for goes with the last chunk of it.
func TestBalanceFeatures(t *testing.T) {
	fstest.OneTask(t)
	x := profileOn(t, 3, "raid5", "raid1c3")
	features := func() uint64 { return x.FS.Super(x.T).IncompatFlags & format.ProfileIncompat }
	convert := func(b *format.BalanceItem) {
		for _, a := range []*format.BalanceArgs{&b.Data, &b.Meta, &b.Sys} {
			a.Flags, a.Target = format.BalanceConvert, format.BlockGroupRAID1
		}
		fstest.Must(x.FS.Balance(x.T, b, nil, nil))
		x.Must(x.FS.Sync(x.T))
	}
	x.WriteAt(x.Create("/f"), make([]byte, 1<<20), 0)
	x.Must(x.FS.Sync(x.T))
	if have := features(); have != format.IncompatRAID56|format.IncompatRAID1C34 {
		t.Errorf("features %#x", have)
	}
	convert(&format.BalanceItem{Flags: format.BalanceData})
	if have := features(); have != format.IncompatRAID1C34 {
		t.Errorf("without RAID5: features %#x", have)
	}
	convert(&format.BalanceItem{Flags: format.BalanceMetadata | format.BalanceSystem})
	if have := features(); have != 0 {
		t.Errorf("without RAID1C3: features %#x", have)
	}
}

// A conversion that finds no place on the first device says so before it changes anything, and the
// file system goes on; in place of it a balance that makes place works.
func TestBalanceNoPlace(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(128<<20), fstest.NoCheck())
	f := x.Create("/f")
	p := make([]byte, 1<<20)
	for off := int64(0); ; off += 1 << 20 {
		if _, err := f.WriteAt(x.T, p, off); errors.Is(err, errno.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	x.Must(x.FS.Sync(x.T))
	fstest.Must(x.FS.AddDevice(x.T, blockdev.NewMemory(256<<20)))
	b := &format.BalanceItem{Flags: format.BalanceData | format.BalanceMetadata | format.BalanceSystem}
	for _, a := range []*format.BalanceArgs{&b.Data, &b.Meta, &b.Sys} {
		a.Flags, a.Target = format.BalanceConvert, format.BlockGroupRAID1
	}
	if _, err := x.FS.Balance(x.T, b, nil, nil); !errors.Is(err, errno.ENOSPC) || !strings.Contains(err.Error(), "system of profile raid1 on 2 devices") {
		t.Errorf("have %v", err)
	}
	if _, noted, err := x.FS.BalanceStatus(x.T); noted || err != nil {
		t.Errorf("a balance is noted: %v, %v", noted, err)
	}
	x.Must(f.Truncate(x.T, 1<<20))
	x.Must(f.Close(x.T))
	x.Must(x.FS.Sync(x.T))
	fstest.Must(x.FS.Balance(x.T, &format.BalanceItem{Flags: format.BalanceData}, nil, nil))
	b.Flags = format.BalanceSystem
	fstest.Must(x.FS.Balance(x.T, b, nil, nil))
}

// A file that is open while its data moves reads and writes where it is now.
func TestBalanceOpen(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(300<<20))
	want := make([]byte, 300<<10)
	fstest.Random(rand.New(rand.NewPCG(5, 5)), want)
	x.WriteAt(x.Create("/before"), make([]byte, 1<<20), 0)
	f := x.Create("/f")
	x.WriteAt(f, want, 0)
	x.Must(x.FS.Sync(x.T))
	old := fstest.Must(f.DiskBytenr(x.T, 8192))
	if _, err := x.FS.Balance(x.T, &format.BalanceItem{Flags: format.BalanceData}, nil, nil); err != nil {
		t.Fatal(err)
	}
	x.WriteAt(x.Create("/after"), bytes.Repeat([]byte{7}, 2<<20), 0)
	x.Must(x.FS.Sync(x.T))
	if now := fstest.Must(f.DiskBytenr(x.T, 8192)); now == old {
		t.Errorf("the data is at %d still", now)
	}
	x.Must(f.Close(x.T))
}

// Quotas count after a balance what they counted before it, with subvolumes that share.
func TestBalanceQuota(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(400<<20))
	x.Must(x.FS.EnableQuota(x.T))
	want := lived(x, 5)
	for range 2 {
		if _, err := x.FS.Balance(x.T, &format.BalanceItem{Flags: format.BalanceData | format.BalanceMetadata | format.BalanceSystem}, nil, nil); err != nil {
			t.Fatal(err)
		}
		fstest.JudgedQuota(x)
	}
	if diff := differs(allOf(x), want); diff != "" {
		t.Error(diff)
	}
}

// A balance of Linux 6.18 that was cut off while the leaves of data that has moved were relocated:
// four relocation trees, and the orphan inode with the copies. Cancelled or gone on with, nothing
// of it is left, and the files are as they were.
func TestBalanceOfLinux(t *testing.T) {
	sums := fstest.Must(os.ReadFile("testdata/balance/relocating.sums"))
	for _, resume := range []bool{false, true} {
		tk := sched.NewTask("balance")
		dev := fstest.Load(t, tk, "testdata/balance/relocating.blocks.gz")
		f := fstest.Must(fs.Open(tk, []blockdev.Device{dev}, fs.Options{}))
		b, ok, err := f.BalanceStatus(tk)
		if err != nil || !ok || b.Flags != format.BalanceData|format.BalanceMetadata|format.BalanceSystem {
			t.Fatalf("have %+v, %v, %v", b, ok, err)
		}
		if resume {
			fstest.Must(f.ResumeBalance(tk, nil, nil))
		} else {
			fstest.NoError(f.CancelBalance(tk))
		}
		if n := fstest.Must(f.RelocOrphans(tk)); n != 0 {
			t.Errorf("resumed %v: %d orphans with copies", resume, n)
		}
		fstest.NoError(f.Close(tk))
		if found := fstest.Findings(tk, dev); found != "" {
			t.Errorf("resumed %v: %s", resume, found)
		}
		f = fstest.Must(fs.Open(tk, []blockdev.Device{dev}, fs.Options{ReadOnly: true}))
		for line := range strings.Lines(string(sums)) {
			sum, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
			if have := fmt.Sprintf("%x", sha256.Sum256(fstest.Must(readAll(tk, f, path)))); have != sum {
				t.Errorf("%s: have %s want %s", path, have, sum)
			}
		}
		fstest.NoError(f.Close(tk))
	}
}
