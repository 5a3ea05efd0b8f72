package fs_test

import (
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestParityConverted: a balance changes profiles to those with parity and back, a device leaves
// and one is replaced, also one that is missing. After each step check finds nothing, and all files
// are there, also without as many devices as the profile bears.
func TestParityConverted(t *testing.T) {
	need.LongRaced(t)
	x := profileOn(t, 4, "raid1", "raid1")
	files := fill(x)
	devs := images(x)
	tk := sched.NewTask("convert")
	step := func(what string, lost int, o fs.Options, do func(f *fs.FS) error) {
		t.Helper()
		f, err := fs.Open(tk, devs, o)
		if err == nil {
			err = errors.Join(do(f), f.Close(tk))
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if o.Degraded {
			return
		}
		if msg := fstest.Findings(tk, devs[0], devs[1:]...); msg != "" {
			t.Fatalf("%s: %s", what, msg)
		}
		readable(t, what, devs, fs.Options{}, files)
		readable(t, fmt.Sprintf("%s, %d lost", what, lost), devs[lost:], fs.Options{Degraded: lost > 0}, files)
	}
	convert := func(profile uint64) func(f *fs.FS) error {
		return func(f *fs.FS) error {
			a := format.BalanceArgs{Flags: format.BalanceConvert, Target: profile}
			_, err := f.Balance(tk, &format.BalanceItem{Flags: 7 | format.BalanceForce, Data: a, Meta: a, Sys: a}, nil, nil)
			if has := f.Super(tk).IncompatFlags&format.IncompatRAID56 != 0; err == nil && !has && profile != format.BlockGroupRAID1 {
				t.Errorf("no feature raid56 after a balance to %#x", profile)
			}
			return err
		}
	}
	step("raid1 to raid5", 1, fs.Options{}, convert(format.BlockGroupRAID5))
	step("raid5 to raid6", 2, fs.Options{}, convert(format.BlockGroupRAID6))
	fresh := blockdev.NewMemory(devs[1].Size())
	step("replace", 2, fs.Options{}, func(f *fs.FS) error {
		err := f.ReplaceDevice(tk, 2, fresh, nil)
		devs[1] = fresh
		return err
	})
	for i := range 2 { // two are missing, and each gets a new one
		gone := uint64(3 - 2*i) // devid
		devs = append(devs[:gone-1:gone-1], devs[gone:]...)
		what := fmt.Sprintf("replace missing %d", gone)
		fresh := blockdev.NewMemory(128 << 20)
		step(what, 0, fs.Options{Degraded: true}, func(f *fs.FS) error { return f.ReplaceDevice(tk, gone, fresh, nil) })
		devs = append(devs[:gone-1:gone-1], append([]blockdev.Device{fresh}, devs[gone-1:]...)...)
		step(what+", after", 2, fs.Options{}, func(*fs.FS) error { return nil })
	}
	step("remove", 2, fs.Options{}, func(f *fs.FS) error {
		devs = devs[:3]
		return f.RemoveDevice(tk, 4, nil, nil)
	})
	step("raid6 to raid1", 1, fs.Options{}, convert(format.BlockGroupRAID1))
}
