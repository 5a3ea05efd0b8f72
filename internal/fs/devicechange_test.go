package fs_test

import (
	"fmt"
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
