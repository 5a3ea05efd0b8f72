package fs_test

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/repair"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestDevicesCut: the power is cut at each write of each of several devices, whose caches lose what
// no flush of that very device has made durable. Every state is sound for check, opens, also
// without the devices that the profile can do without, and has what fsync, syncfs and commits had
// promised. A flush that leaves one device out loses it.
//
// The write hole: of a profile with parity a cut leaves rows whose parity is not their data's.
// Check finds nothing else, a repair makes the parity anew, and then all holds without devices.
func TestDevicesCut(t *testing.T) {
	need.Long(t)
	for _, c := range deviceCases {
		if c.n == 1 || testing.Short() && c.data == "raid10" {
			continue
		}
		t.Run(fmt.Sprintf("%d %s %s", c.n, c.data, c.metadata), func(t *testing.T) {
			fstest.OneTask(t)
			x := profileOn(t, c.n, c.data, c.metadata)
			x.Close()
			var mem []*blockdev.Memory
			for _, d := range append([]blockdev.Device{x.Dev}, x.More...) {
				mem = append(mem, d.(*blockdev.Memory))
			}
			cuts := fstest.NewCuts(mem...)
			f, err := fs.Open(x.T, cuts.Devices(), fs.Options{})
			fstest.NoError(err)
			// What is promised by a mark: also by the log, and by commits alone.
			type promise struct{ all, committed map[string][]byte }
			now := promise{map[string][]byte{}, map[string][]byte{}}
			history := map[string]promise{}
			mark := func() {
				name := fmt.Sprint(len(history) + 1)
				history[name] = promise{maps.Clone(now.all), maps.Clone(now.committed)}
				cuts.Mark(name)
			}
			for i, n := range []int{5000, 200000, 70000, 4096, 131072, 300} {
				name, p := fmt.Sprintf("/%d", i), bytes.Repeat([]byte{byte('a' + i)}, n)
				file, err := f.OpenFile(x.T, name, fs.O_RDWR|fs.O_CREAT, 0o644)
				fstest.NoError(err)
				_, err = file.WriteAt(x.T, p, 0)
				fstest.NoError(err)
				now.all[name] = p
				if i%3 < 2 {
					fstest.NoError(file.Fsync(x.T))
				} else {
					fstest.NoError(f.Sync(x.T))
					now.committed = maps.Clone(now.all)
				}
				fstest.NoError(file.Close(x.T))
				mark()
			}
			fstest.NoError(f.Close(x.T))
			states, holes := 0, 0
			cuts.Each(x.T, 1, 1, func(s fstest.Cut) {
				what := fmt.Sprintf("cut at %d of %d, promise %q, %d writes held", s.At, cuts.Len(), s.Mark, s.Held)
				if states++; t.Failed() {
					return
				}
				holes += writeHole(t, what, s.Devs) + recovered(t, what, s.Devs, fs.Options{}, history[s.Mark].all)
				for lost := range c.lost {
					left := s.Devs[lost+1:]
					recovered(t, fmt.Sprintf("%s, the first %d devices are gone", what, lost+1), left, fs.Options{ReadOnly: true, Degraded: true}, history[s.Mark].committed)
				}
			})
			if states < 100 {
				t.Errorf("%d states", states)
			}
			// A row with one unit of data has no other that a write in flight could be of.
			if shared := c.data == "raid5" && c.n > 2 || c.data == "raid6" && c.n > 3; shared != (holes > 0) {
				t.Errorf("%d states with the write hole", holes)
			}
		})
	}
}

// writeHole has check find nothing but parity, and a repair put that right. It is 1 if some was
// wrong.
func writeHole(t *testing.T, what string, devs []blockdev.Device) int {
	t.Helper()
	r, err := repair.Propose(sched.NewTask("repair"), devs[0], check.Options{Devices: devs[1:]})
	if err != nil {
		t.Fatal(err)
	}
	if r.Before.Clean {
		return 0
	}
	for _, f := range r.Before.Findings {
		if f.Rule != "data.parity" {
			t.Errorf("%s: %v", what, f)
		}
	}
	if err := r.Commit(sched.NewTask("repair"), func(int, int64, []byte) error { return nil }, func() error { return nil }); err != nil {
		t.Error(err)
	}
	return 1
}

// recovered opens copies of the devices, for writing with a replay of the log, and wants the files.
// It is 1 if parity was wrong then: before the replay check does not know of data in the log.
func recovered(t *testing.T, what string, devs []blockdev.Device, o fs.Options, files map[string][]byte) int {
	t.Helper()
	var copies []blockdev.Device
	for _, d := range devs {
		copies = append(copies, d.(*blockdev.Memory).Snapshot())
	}
	x := sched.NewTask("recover")
	f, err := fs.Open(x, copies, o)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return 0
	}
	for path, want := range files {
		if have, err := readAll(x, f, path); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s: %s has %d bytes, want %d, %v", what, path, len(have), len(want), err)
		}
	}
	if err := f.Close(x); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if o.Degraded {
		return 0
	}
	return writeHole(t, what+", after the replay", copies)
}
