package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// found lists the rules that the devices break, each once.
func found(t *testing.T, devs []blockdev.Device) (rules []string, r check.Result) {
	t.Helper()
	r, err := check.Check(sched.NewTask("check"), devs[0], check.Options{Devices: devs[1:]})
	b, _ := check.Check(sched.NewTask("check"), devs[0], check.Options{Devices: devs[1:], MaxMemory: 1})
	if len(b.Findings) != len(r.Findings) || b.Stats != r.Stats {
		t.Errorf("with bounded memory %+v %v want %+v %v", b.Stats, b.Findings, r.Stats, r.Findings)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		rules = append(rules, f.Rule)
	}
	return slices.Compact(rules), r
}

// mapOf is the chunk map of the devices.
func mapOf(t *testing.T, devs []blockdev.Device) check.MapOf {
	t.Helper()
	m, err := check.NewMap(sched.NewTask("map"), devs)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func flip(t *testing.T, d blockdev.Device, off uint64) {
	t.Helper()
	tk := sched.NewTask("flip")
	p := make([]byte, 1)
	if err := blockdev.Read(tk, d, p, int64(off)); err != nil {
		t.Fatal(err)
	}
	p[0] ^= 0x40
	if err := blockdev.Write(tk, d, p, int64(off)); err != nil {
		t.Fatal(err)
	}
}

// TestParity: a byte of P or Q that is wrong is found where the row has data, and data that is
// wrong breaks its checksum as well.
func TestParity(t *testing.T) {
	parity := map[string]int{"raid5": 1, "raid6": 2}
	for name, n := range map[string]int{"raid5": 3, "raid6": 4} {
		var devs []blockdev.Device
		for i := range n {
			devs = append(devs, fstest.Load(t, sched.NewTask("load"), fmt.Sprintf("../../fs/testdata/%s-%d.blocks.gz", name, i+1)))
		}
		if rules, r := found(t, devs); len(rules) > 0 {
			t.Fatalf("%s: %v", name, r.Findings)
		}
		for i, unit := range mapOf(t, devs).DataRow() {
			want := []string{"data.parity"}
			if i < n-parity[name] {
				want = []string{"data.csum", "data.parity"}
			}
			off := unit.Off + 7
			flip(t, unit.Dev, off)
			if rules, r := found(t, devs); !slices.Equal(rules, want) {
				t.Errorf("%s: unit %d: have %v want %v\n%v", name, i, rules, want, r.Findings)
			}
			flip(t, unit.Dev, off)
		}
	}
}

// TestEachCopy: a wrong byte of any copy of data and of tree blocks is found, and its place named.
func TestEachCopy(t *testing.T) {
	for _, c := range []struct {
		profile   string
		n, copies int
	}{{"raid1", 2, 2}, {"raid10", 4, 2}, {"raid1c3", 3, 3}, {"raid1c4", 4, 4}} {
		x := fstest.New(t, fstest.Devices(c.n), fstest.Size(128<<20), fstest.NoCheck(), fstest.MkfsOptions(func(o *mkfs.Options) {
			o.DataProfile, o.MetadataProfile = c.profile, c.profile
		}))
		f := x.Create("/f")
		x.WriteAt(f, make([]byte, 300000), 0)
		f.Close(x.T)
		x.Close()
		devs := append([]blockdev.Device{x.Dev}, x.More...)
		if rules, r := found(t, devs); len(rules) > 0 {
			t.Fatalf("%s: %v", c.profile, r.Findings)
		}
		m := mapOf(t, devs)
		data := m.First(format.BlockGroupData) // the first file begins its chunk
		for logical, rule := range map[uint64]string{data: "data.csum", m.ChunkRoot(): "tree.csum"} {
			places := m.At(logical)
			if len(places) != c.copies {
				t.Errorf("%s: have %d copies want %d", c.profile, len(places), c.copies)
			}
			for i, p := range places {
				flip(t, p.Dev, p.Off+70)
				where := fmt.Sprintf("mirror=%d devid=%d device_offset=%d", i, p.Devid, p.Off)
				if rules, r := found(t, devs); !slices.Equal(rules, []string{rule}) || !strings.Contains(r.Findings[0].Where(), where) {
					t.Errorf("%s: have %v %v want %s at %s", c.profile, rules, r.Findings, rule, where)
				}
				flip(t, p.Dev, p.Off+70)
			}
		}
	}
}

// TestDevicesTogether: a device that has missed commits is found; one that is missing, of another
// file system or given twice is an error.
func TestDevicesTogether(t *testing.T) {
	x := fstest.New(t, fstest.Devices(2), fstest.Size(128<<20), fstest.NoCheck())
	old := x.More[0].(*blockdev.Memory).Snapshot()
	for i := range 3 {
		x.Create(fmt.Sprint("/", i)).Close(x.T)
		if err := x.FS.Sync(x.T); err != nil {
			t.Fatal(err)
		}
	}
	x.Close()
	_, r := found(t, []blockdev.Device{x.Dev, old})
	if !slices.ContainsFunc(r.Findings, func(f check.Finding) bool { return f.Rule == "super.device" && f.Have.String() == "generation 1" }) {
		t.Errorf("stale device: %v", r.Findings)
	}
	y := fstest.New(t, fstest.MkfsOptions(func(o *mkfs.Options) { o.FSID[1]++ }))
	for want, devs := range map[string][]blockdev.Device{
		"memory: file system of 2 devices, have 1": {x.Dev},
		"device of another file system":            {x.Dev, y.Dev},
		"is device 1 of the file system":           {x.Dev, x.Dev},
	} {
		if _, err := check.Check(x.T, devs[0], check.Options{Devices: devs[1:]}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v want %q", err, want)
		}
	}
}
