package rescue_test

import (
	"fmt"
	"maps"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestCopyParity: of RAID5 and RAID6 with as many devices missing as there is parity, or with one
// full of garbage beyond its superblocks, each file comes out as of all devices.
func TestCopyParity(t *testing.T) {
	tk := sched.NewTask("test")
	copied := func(devs []blockdev.Device) (map[string]string, rescue.Summary, error) {
		im, err := rescue.Open(tk, devs, rescue.Options{})
		if err != nil {
			return nil, rescue.Summary{}, err
		}
		m := newMemory()
		sum, err := im.Copy(m, rescue.CopyOptions{Snapshots: true})
		return m.files, sum, err
	}
	for name, n := range map[string]int{"raid5": 3, "raid6": 4} {
		var all []blockdev.Device
		for i := range n {
			all = append(all, fstest.Load(t, tk, fmt.Sprintf("../../fs/testdata/%s-%d.blocks.gz", name, i+1)))
		}
		want, whole, err := copied(all)
		if err != nil || whole.Whole == 0 || whole.Partial+whole.Lost > 0 {
			t.Fatalf("%s: %v %+v", name, err, whole)
		}
		try := func(what string, devs []blockdev.Device) {
			t.Helper()
			have, sum, err := copied(devs)
			if err != nil || sum != whole || !maps.Equal(have, want) {
				t.Errorf("%s %s: %v, have %+v want %+v", name, what, err, sum, whole)
			}
		}
		for i := range n {
			var left []blockdev.Device
			for k, d := range all {
				if k != i {
					left = append(left, d)
				}
			}
			try(fmt.Sprintf("without device %d", i+1), left)
			if n == 4 { // two of them
				for k := range left {
					if k > 0 {
						try(fmt.Sprintf("without device %d and another", i+1), append(append([]blockdev.Device{}, left[:k]...), left[k+1:]...))
					}
				}
			}
			devs := append([]blockdev.Device{}, all...)
			devs[i] = garbage(t, tk, all[i])
			try(fmt.Sprintf("with garbage on device %d", i+1), devs)
			if k := (i + 1) % n; n == 4 {
				devs[k] = garbage(t, tk, all[k])
				try(fmt.Sprintf("with garbage on devices %d and %d", i+1, k+1), devs)
			}
		}
	}
}

// garbage is a device with garbage beyond its superblocks.
func garbage(t *testing.T, tk *sched.Task, d blockdev.Device) blockdev.Device {
	t.Helper()
	m := d.(*blockdev.Memory).Snapshot()
	p := make([]byte, 1<<20)
	for k := range p {
		p[k] = byte(k * 7)
	}
	for off := int64(1 << 20); off < m.Size(); off += 1 << 20 {
		if off != 64<<20 { // the copy of the superblock
			if err := blockdev.Write(tk, m, p[:min(len(p), int(m.Size()-off))], off); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}
