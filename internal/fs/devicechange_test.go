package fs_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// sets are the choices of k of devs that have a superblock.
func sets(devs []blockdev.Device, k int) (list [][]blockdev.Device) {
	for bits := range 1 << len(devs) {
		var set []blockdev.Device
		for i, d := range devs {
			if bits>>i&1 != 0 {
				set = append(set, d)
			}
		}
		if len(set) == k {
			list = append(list, set)
		}
	}
	return list
}

// withSupers is the devices that have a superblock, and how many devices the newest one tells of.
func withSupers(t *sched.Task, devs []blockdev.Device) (some []blockdev.Device, num int) {
	newest := uint64(0)
	for _, d := range devs {
		p := make([]byte, format.SuperSize)
		fstest.NoError(blockdev.Read(t, d, p, format.SuperOffset))
		if format.SuperMagic(p) != format.Magic {
			continue
		}
		var sb format.Super
		sb.Decode(p)
		some = append(some, d)
		if sb.Generation > newest {
			newest, num = sb.Generation, int(sb.NumDevices)
		}
	}
	return some, num
}

// The power is cut while devices are added, replaced and removed, and profiles changed: each time
// there are devices, as many as the newest superblock tells of, that are a sound file system with
// all that was in it.
func TestDeviceChangesCut(t *testing.T) {
	need.Long(t)
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(200<<20), fstest.MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile = "single" }))
	want := lived(x, 3)
	x.Close()
	mem := []*blockdev.Memory{x.Dev.(*blockdev.Memory), blockdev.NewMemory(200 << 20), blockdev.NewMemory(220 << 20), blockdev.NewMemory(240 << 20)}
	cuts := fstest.NewCuts(mem...)
	devs := cuts.Devices()
	f := fstest.Must(fs.Open(x.T, devs[:1], fs.Options{}))
	convert := func(profile uint64) {
		a := format.BalanceArgs{Flags: format.BalanceConvert, Target: profile}
		_, err := f.Balance(x.T, &format.BalanceItem{Flags: 7 | format.BalanceForce, Data: a, Meta: a, Sys: a}, nil, nil)
		fstest.NoError(err)
	}
	step := func(name string, do func()) {
		cuts.Mark(name)
		do()
		if diff := differs(allIn(x.T, f), want); diff != "" {
			t.Fatalf("%s: %s", name, diff)
		}
	}
	step("add b", func() { fstest.Must(f.AddDevice(x.T, devs[1])) })
	step("raid1", func() { convert(format.BlockGroupRAID1) })
	step("add c", func() { fstest.Must(f.AddDevice(x.T, devs[2])) })
	step("remove a", func() { fstest.NoError(f.RemoveDevice(x.T, 1, nil, nil)) })
	step("replace b", func() { fstest.NoError(f.ReplaceDevice(x.T, 2, devs[3], nil)) })
	step("raid0", func() { convert(format.BlockGroupRAID0) })
	fstest.NoError(f.Close(x.T))
	seen := soundAtCuts(t, x.T, cuts, max(1, cuts.Len()/60), want)
	if len(seen) != 6 {
		t.Errorf("cuts in %v", seen)
	}
}

// The power is cut at each write while a device is added, and while another one takes its place.
func TestDeviceAddCut(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(130<<20))
	x.WriteAt(x.Create("/f"), make([]byte, 100000), 0)
	x.Must(x.FS.Sync(x.T))
	want := allOf(x)
	x.Close()
	cuts := fstest.NewCuts(x.Dev.(*blockdev.Memory), blockdev.NewMemory(130<<20), blockdev.NewMemory(130<<20))
	devs := cuts.Devices()
	f := fstest.Must(fs.Open(x.T, devs[:1], fs.Options{}))
	cuts.Mark("add")
	fstest.Must(f.AddDevice(x.T, devs[1]))
	cuts.Mark("replace")
	fstest.NoError(f.ReplaceDevice(x.T, 2, devs[2], nil))
	if seen := soundAtCuts(t, x.T, cuts, 1, want); seen["add"] < 10 || seen["replace"] < 5 {
		t.Errorf("cuts in %v", seen)
	}
	fstest.NoError(f.Close(x.T))
}

// soundAtCuts wants devices, as many as the newest superblock tells of, that are a sound file
// system with all that is wanted, at every nth cut. It counts the cuts after each mark.
func soundAtCuts(t *testing.T, tk *sched.Task, cuts *fstest.Cuts, nth int, want map[string]string) map[string]int {
	seen := map[string]int{}
	cuts.Each(tk, nth, 1, func(s fstest.Cut) {
		if t.Failed() {
			return
		}
		what := fmt.Sprintf("cut at %d of %d, in %s, %d writes held", s.At, cuts.Len(), s.Mark, s.Held)
		seen[s.Mark]++
		some, num := withSupers(tk, s.Devs)
		var why string
		for _, set := range sets(some, num) {
			f, err := fs.Open(tk, set, fs.Options{ReadOnly: true})
			if err != nil {
				why = err.Error()
				continue
			}
			if why = fstest.Findings(tk, set[0], set[1:]...); why == "" {
				why = differs(allIn(tk, f), want)
			}
			fstest.NoError(f.Close(tk))
			if why == "" {
				return
			}
		}
		t.Errorf("%s: %d devices with a superblock, %d wanted: %s", what, len(some), num, why)
	})
	return seen
}

// A device that was missing when the file system was written is refused when it comes back, also
// after a single commit, and after one that wrote nothing else.
func TestDeviceLeftBehind(t *testing.T) {
	fstest.OneTask(t)
	for _, write := range []bool{false, true} {
		x := profileOn(t, 3, "raid1", "raid1")
		x.Close()
		devs := images(x)
		f := fstest.Must(fs.Open(x.T, devs[:2], fs.Options{Degraded: true}))
		if write {
			file := fstest.Must(f.OpenFile(x.T, "/new", fs.O_RDWR|fs.O_CREAT, 0o644))
			fstest.Must(file.WriteAt(x.T, make([]byte, 5000), 0))
			fstest.NoError(file.Fsync(x.T))
			fstest.NoError(file.Close(x.T))
		}
		fstest.NoError(f.Close(x.T))
		if _, err := fs.Open(x.T, devs, fs.Options{}); err == nil || !strings.Contains(err.Error(), "stale device 3") {
			t.Errorf("written %v: %v", write, err)
		}
		f = fstest.Must(fs.Open(x.T, devs[:2], fs.Options{Degraded: true}))
		fstest.NoError(f.ReplaceDevice(x.T, 3, blockdev.NewMemory(devs[2].Size()), nil))
		fstest.NoError(f.Close(x.T))
	}
}

// One device of a RAID1 takes more than its chunks have room for: new chunks are single then, as
// Linux makes them, and the missing device is replaced nevertheless.
func TestDegradedNewChunks(t *testing.T) {
	fstest.OneTask(t)
	x := profileOn(t, 2, "raid1", "raid1")
	x.Close()
	devs := images(x)
	f := fstest.Must(fs.Open(x.T, devs[:1], fs.Options{Degraded: true}))
	file := fstest.Must(f.OpenFile(x.T, "/new", fs.O_RDWR|fs.O_CREAT, 0o644))
	want := bytes.Repeat([]byte("more than there is room for. "), 2<<20)
	fstest.Must(file.WriteAt(x.T, want, 0))
	fstest.NoError(file.Close(x.T))
	fresh := blockdev.NewMemory(devs[1].Size())
	fstest.NoError(f.ReplaceDevice(x.T, 2, fresh, nil))
	fstest.NoError(f.Close(x.T))
	if found := fstest.Findings(x.T, devs[0], fresh); found != "" {
		t.Error(found)
	}
	f = fstest.Must(fs.Open(x.T, []blockdev.Device{devs[0], fresh}, fs.Options{ReadOnly: true}))
	if have := fstest.Must(readAll(x.T, f, "/new")); !bytes.Equal(have, want) {
		t.Errorf("%d bytes, %d written", len(have), len(want))
	}
	fstest.NoError(f.Close(x.T))
}

// A log is replayed in block groups of both data and metadata: the tree blocks of the replay do not
// take the places of the data that the log names.
func TestMixedLogReplay(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(200<<20), fstest.NoCheck(), fstest.FSOptions(func(o *fs.Options) { o.FirstFit = true }),
		fstest.MkfsOptions(func(o *mkfs.Options) { o.Mixed, o.NodeSize = true, 4096 }))
	for i := range 200 {
		f := x.Create(fmt.Sprintf("/f%d", i))
		x.WriteAt(f, bytes.Repeat([]byte{byte(i)}, 5000+i*100), 0)
		x.Must(f.Fsync(x.T))
		x.Must(f.Close(x.T))
	}
	dev := x.Dev.(*blockdev.Memory).Snapshot() // the power fails
	f := fstest.Must(fs.Open(x.T, []blockdev.Device{dev}, fs.Options{FirstFit: true}))
	for i := range 200 {
		if have := fstest.Must(readAll(x.T, f, fmt.Sprintf("/f%d", i))); !bytes.Equal(have, bytes.Repeat([]byte{byte(i)}, 5000+i*100)) {
			t.Errorf("file %d: %d bytes", i, len(have))
		}
	}
	fstest.NoError(f.Close(x.T))
	if found := fstest.Findings(x.T, dev); found != "" {
		t.Error(found)
	}
}
