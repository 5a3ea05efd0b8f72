package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// A list without a device, or with one twice, is refused.
func TestOpenDevices(t *testing.T) {
	x := fstest.New(t)
	for _, c := range []struct {
		devs []blockdev.Device
		want string
	}{{nil, "have no device"}, {[]blockdev.Device{x.Dev, x.Dev}, "is device 1 of the file system, as memory is"}} {
		if _, err := fs.Open(x.T, c.devs, fs.Options{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d devices: have %v want %q", len(c.devs), err, c.want)
		}
	}
}

// profileOn makes a file system of the profile, for data and metadata, on n devices.
func profileOn(t *testing.T, n int, data, metadata string) *fstest.Fixture {
	return fstest.New(t, fstest.Devices(n), fstest.Size(128<<20), fstest.MkfsOptions(func(o *mkfs.Options) {
		o.DataProfile, o.MetadataProfile = data, metadata
	}))
}

// deviceCases are the profiles that are written, with the devices that may be lost.
var deviceCases = []struct {
	n              int
	data, metadata string
	lost           int
}{
	{2, "single", "dup", 0}, {3, "single", "raid1", 0}, {2, "raid0", "raid0", 0}, {3, "raid0", "raid1", 0}, {2, "dup", "raid1", 0}, {2, "raid1", "raid1", 1},
	{2, "raid5", "raid5", 1}, {3, "raid5", "raid5", 1}, {3, "raid6", "raid1c3", 2}, {5, "raid6", "raid6", 2},
	{2, "raid10", "raid10", 1}, {4, "raid10", "raid10", 1}, {3, "raid1c3", "raid1c3", 2}, {4, "raid1c4", "raid1c4", 3}, {1, "raid0", "dup", 0},
}

// fill writes files that need new chunks, and gives their contents.
func fill(x *fstest.Fixture) map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	files := map[string][]byte{}
	for i, n := range []int{5, 4096, 70000, 3<<20 + 17, 11 << 20} {
		p := make([]byte, n)
		for k := range p {
			p[k] = byte(r.Uint32())
		}
		files[fmt.Sprintf("/%d", i)] = p
	}
	for path, p := range files {
		f := x.Create(path)
		x.WriteAt(f, p, 0)
		if err := f.Close(x.T); err != nil {
			x.Fatal(err)
		}
	}
	return files
}

// TestDevices writes file systems of each profile; the fixture checks all copies on all devices.
func TestDevices(t *testing.T) {
	need.LongRaced(t)
	for _, c := range deviceCases {
		t.Run(fmt.Sprintf("%d %s %s", c.n, c.data, c.metadata), func(t *testing.T) {
			x := profileOn(t, c.n, c.data, c.metadata)
			chunks := x.FS.Statfs(x.T).DataTotal
			files := fill(x)
			if after := x.FS.Statfs(x.T).DataTotal; after == chunks {
				t.Errorf("no chunk was made, have %d bytes", after)
			}
			want := map[string]uint64{"raid5": format.IncompatRAID56, "raid6": format.IncompatRAID56, "raid1c3": format.IncompatRAID1C34, "raid1c4": format.IncompatRAID1C34}
			if have := x.FS.Super(x.T).IncompatFlags & (format.IncompatRAID56 | format.IncompatRAID1C34); have != want[c.data]|want[c.metadata] {
				t.Errorf("features %v, want %v", format.IncompatNames(have), format.IncompatNames(want[c.data]|want[c.metadata]))
			}
			x.Reopen()
			for path, want := range files {
				if !bytes.Equal(x.ReadFile(path), want) {
					t.Errorf("%s has other bytes", path)
				}
			}
		})
	}
}

// images copies the devices of a closed fixture.
func images(x *fstest.Fixture) (devs []blockdev.Device) {
	x.Close()
	for _, d := range append([]blockdev.Device{x.Dev}, x.More...) {
		devs = append(devs, d.(*blockdev.Memory).Snapshot())
	}
	return devs
}

// ruin makes a device of which all but the superblocks is noise.
func ruin(t *testing.T, dev blockdev.Device) {
	tk := sched.NewTask("ruin")
	noise := bytes.Repeat([]byte("all wrong "), 1<<20/10+1)[:1<<20]
	for off := int64(1 << 20); off < dev.Size(); off += 1 << 20 {
		if off == int64(format.SuperMirror(1)) {
			continue
		}
		if err := blockdev.Write(tk, dev, noise, off); err != nil {
			t.Fatal(err)
		}
	}
}

// readable wants the files on the devices to have their contents.
func readable(t *testing.T, what string, devs []blockdev.Device, o fs.Options, files map[string][]byte) {
	t.Helper()
	tk := sched.NewTask("read")
	o.ReadOnly = true
	f, err := fs.Open(tk, devs, o)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	defer f.Close(tk)
	for path, want := range files {
		if have, err := readAll(tk, f, path); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s: %s has %d bytes, %v", what, path, len(have), err)
		}
	}
}

func readAll(tk *sched.Task, f *fs.FS, path string) ([]byte, error) {
	file, err := f.OpenFile(tk, path, fs.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close(tk)
	p := make([]byte, file.Size(tk))
	n, err := file.ReadAt(tk, p, 0)
	return p[:n], err
}

// subsets calls f with each choice of up to k of n.
func subsets(n, k int, f func(chosen []bool)) {
	for bits := 1; bits < 1<<n; bits++ {
		chosen, count := make([]bool, n), 0
		for i := range chosen {
			if chosen[i] = bits>>i&1 != 0; chosen[i] {
				count++
			}
		}
		if count <= k {
			f(chosen)
		}
	}
}

// spared wants every choice of k devices to be spared: they are noise, then they are missing.
func spared(t *testing.T, devs []blockdev.Device, k int, files map[string][]byte) {
	subsets(len(devs), k, func(chosen []bool) {
		var ruined, left []blockdev.Device
		for i, d := range devs {
			d := blockdev.Device(d.(*blockdev.Memory).Snapshot())
			if chosen[i] {
				ruin(t, d)
			} else {
				left = append(left, d)
			}
			ruined = append(ruined, d)
		}
		readable(t, fmt.Sprint("noise on ", chosen), ruined, fs.Options{Degraded: true}, files)
		readable(t, fmt.Sprint("without ", chosen), left, fs.Options{Degraded: true}, files)
	})
}

// TestDevicesSpared: a profile with copies or parity does without as many devices as it promises,
// whether their blocks are bad or the devices are missing.
func TestDevicesSpared(t *testing.T) {
	need.Long(t)
	for _, c := range deviceCases {
		if c.lost == 0 {
			continue
		}
		t.Run(fmt.Sprintf("%d %s", c.n, c.data), func(t *testing.T) {
			x := profileOn(t, c.n, c.data, c.metadata)
			files := fill(x)
			spared(t, images(x), c.lost, files)
		})
	}
}

// TestDeviceMissing: without a device a file system is refused, unless it is degraded, and then it
// is not written where a profile does not bear that, and what is on the missing device is EIO.
func TestDeviceMissing(t *testing.T) {
	x := profileOn(t, 3, "single", "raid1c3")
	files := fill(x)
	devs := images(x)
	devs = append(devs[:1], devs[2:]...)
	refused := func(o fs.Options, want string) {
		t.Helper()
		if _, err := fs.Open(x.T, devs, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v want %q", err, want)
		}
	}
	refused(fs.Options{ReadOnly: true}, "memory: file system of 3 devices, have 2 (devid 1, 3): name the others")
	refused(fs.Options{Degraded: true}, "of profile single: 1 of its devices missing, it bears 0: open read-only")
	f, err := fs.Open(x.T, devs, fs.Options{ReadOnly: true, Degraded: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(x.T)
	whole, lost := 0, 0
	for path, want := range files {
		switch have, err := readAll(x.T, f, path); {
		case err == nil && bytes.Equal(have, want):
			whole++
		case errors.Is(err, errno.EIO) && strings.Contains(err.Error(), "device 2 is missing"):
			lost++
		default:
			t.Errorf("%s: %v", path, err)
		}
	}
	if whole == 0 || lost == 0 {
		t.Errorf("have %d files whole and %d lost, want both", whole, lost)
	}
}

// TestDevicesRefused: devices that do not belong together.
func TestDevicesRefused(t *testing.T) {
	x := profileOn(t, 2, "raid1", "raid1")
	old := x.More[0].(*blockdev.Memory).Snapshot()
	fill(x)
	for i := range 3 {
		f := x.Create(fmt.Sprint("/new", i))
		f.Close(x.T)
		if err := x.FS.Sync(x.T); err != nil {
			t.Fatal(err)
		}
	}
	devs := images(x)
	y := fstest.New(t, fstest.MkfsOptions(func(o *mkfs.Options) { o.FSID[1]++ }))
	for _, c := range []struct {
		what string
		devs []blockdev.Device
		want string
	}{
		{"another file system", []blockdev.Device{devs[0], y.Dev}, "device of another file system, have fsid f501"},
		{"stale", []blockdev.Device{devs[0], old}, "stale device 2, have generation 1 want "},
		{"twice", []blockdev.Device{devs[1], devs[0], devs[1]}, "is device 2 of the file system"},
	} {
		if _, err := fs.Open(x.T, c.devs, fs.Options{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: have %v want %q", c.what, err, c.want)
		}
	}
	readable(t, "the other way round", []blockdev.Device{devs[1], devs[0]}, fs.Options{}, nil)
}

// The images testdata/raid5-N.blocks.gz and raid6-N.blocks.gz, as root:
//
//	truncate -s 128M 1 2 3 4; losetup each; mkfs.btrfs -d raid5 -m raid5 /dev/loop[012]; mount
//	echo hello > small; mkdir d; yes 0123456789abcdef | head -c 500000 > d/large; sync
//	seq 200000 | tail -c 40000 > d/numbers
//	dd if=/dev/zero bs=4k count=3 seek=20 of=d/large conv=notrunc

// parityImage is the devices of one, and its files.
func parityImage(t *testing.T, name string, n int) (devs []blockdev.Device, files map[string][]byte) {
	tk := sched.NewTask("load")
	for i := range n {
		devs = append(devs, fstest.Load(t, tk, fmt.Sprintf("testdata/%s-%d.blocks.gz", name, i+1)))
	}
	large := bytes.Repeat([]byte("0123456789abcdef\n"), 500000/17+1)[:500000]
	clear(large[20*4096 : 23*4096])
	var numbers []byte
	for i := range 200000 {
		numbers = fmt.Appendln(numbers, i+1)
	}
	return devs, map[string][]byte{"/small": []byte("hello\n"), "/d/large": large, "/d/numbers": numbers[len(numbers)-40000:]}
}

// TestParity reads RAID5 and RAID6, with each choice of devices bad and missing that the profile
// can do without.
func TestParity(t *testing.T) {
	need.LongRaced(t)
	for _, c := range []struct {
		name    string
		n, lost int
	}{{"raid5", 3, 1}, {"raid6", 4, 2}} {
		t.Run(c.name, func(t *testing.T) {
			devs, files := parityImage(t, c.name, c.n)
			tk := sched.NewTask("test")
			if msg := fstest.Findings(tk, devs[0], devs[1:]...); msg != "" {
				t.Errorf("check:\n%s", msg)
			}
			readable(t, "whole", devs, fs.Options{}, files)
			spared(t, devs, c.lost, files)
			writtenWithout(t, devs, c.lost, files)
		})
	}
}

// writtenWithout writes a file with up to k devices missing, and wants all to be read with as many
// missing as the rest of k lets.
func writtenWithout(t *testing.T, devs []blockdev.Device, k int, files map[string][]byte) {
	tk := sched.NewTask("write")
	want := maps.Clone(files)
	want["/new"] = bytes.Repeat([]byte("new to the row "), 20000)
	for missing := range k + 1 {
		var left []blockdev.Device
		for _, d := range devs[missing:] {
			left = append(left, d.(*blockdev.Memory).Snapshot())
		}
		f, err := fs.Open(tk, left, fs.Options{Degraded: missing > 0})
		if err != nil {
			t.Fatal(err)
		}
		file, err := f.Create(tk, "/new", 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(tk, want["/new"], 0); err != nil {
			t.Error(err)
		}
		if err := errors.Join(file.Close(tk), f.Close(tk)); err != nil {
			t.Error(err)
		}
		readable(t, fmt.Sprint("written without ", missing), left, fs.Options{Degraded: missing > 0}, want)
		if missing == 0 {
			if msg := fstest.Findings(tk, left[0], left[1:]...); msg != "" {
				t.Errorf("check:\n%s", msg)
			}
		}
		if missing < k {
			spared(t, left, k-missing, want)
		}
	}
}

// TestBadCopy: a copy that is bad is told of, by its mirror, when another one is read.
func TestBadCopy(t *testing.T) {
	need.LongRaced(t)
	x := profileOn(t, 2, "raid1", "raid1")
	files := fill(x)
	devs := images(x)
	ruin(t, devs[0])
	var mu sync.Mutex
	var blocks, sectors int
	readable(t, "one copy", devs, fs.Options{BadCopy: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case strings.Contains(err.Error(), "mirror 0: corrupt"):
			blocks++
		case strings.Contains(err.Error(), " mirror=0, have "):
			sectors++
		default:
			t.Errorf("have %v", err)
		}
	}}, files)
	if blocks == 0 || sectors == 0 {
		t.Errorf("told of %d blocks and %d sectors, want both", blocks, sectors)
	}
	readable(t, "no bad copy", devs[1:], fs.Options{Degraded: true, BadCopy: func(err error) { t.Errorf("told of %v", err) }}, files)
}

// TestTornSupers: a crash between the superblocks of two devices leaves the commit, which is in the
// newer one, whichever device is named first; check notes it.
func TestTornSupers(t *testing.T) {
	need.LongRaced(t)
	x := profileOn(t, 2, "raid0", "raid0")
	super := func(dev blockdev.Device, op func(*sched.Task, blockdev.Device, []byte, int64) error, p []byte) {
		t.Helper()
		if err := op(x.T, dev, p, format.SuperOffset); err != nil {
			t.Fatal(err)
		}
	}
	files := fill(x)
	if err := x.FS.Sync(x.T); err != nil {
		t.Fatal(err)
	}
	before := x.FS.Super(x.T).Generation
	old := make([]byte, format.SuperSize)
	super(x.More[0], blockdev.Read, old)
	x.Create("/last").Close(x.T)
	files["/last"] = nil
	if err := x.FS.Sync(x.T); err != nil {
		t.Fatal(err)
	}
	devs := images(x)
	if after := x.FS.Super(x.T).Generation; after != before+1 {
		t.Fatalf("have generation %d want %d", after, before+1)
	}
	super(devs[1], blockdev.Write, old)
	readable(t, "torn", devs, fs.Options{}, files)
	readable(t, "torn, the old one first", []blockdev.Device{devs[1], devs[0]}, fs.Options{}, files)
	if msg := fstest.Findings(x.T, devs[1], devs[0]); msg != "" {
		t.Errorf("check:\n%s", msg)
	}
	f, err := fs.Open(x.T, []blockdev.Device{devs[1], devs[0]}, fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Mkdir(x.T, "/d", 0o755); err != nil {
		t.Error(err)
	}
	if err := f.Close(x.T); err != nil {
		t.Error(err)
	}
	if msg := fstest.Findings(x.T, devs[0], devs[1]); msg != "" {
		t.Errorf("check after a write:\n%s", msg)
	}
}
