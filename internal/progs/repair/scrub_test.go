package repair

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// scrubbed makes a file system of a profile with a few files, on memory.
func scrubbed(t *testing.T, profile string, n int) []blockdev.Device {
	x := fstest.New(t, fstest.Devices(n), fstest.Size(128<<20), fstest.NoCheck(), fstest.MkfsOptions(func(o *mkfs.Options) {
		o.DataProfile, o.MetadataProfile = profile, profile
	}))
	for i := range 40 {
		f := x.Create(fmt.Sprint("/f", i))
		x.WriteAt(f, bytes.Repeat([]byte{byte(i), 1, 2}, 30000), 0)
		f.Close(x.T)
	}
	x.Close()
	return append([]blockdev.Device{x.Dev}, x.More...)
}

func snapshots(devs []blockdev.Device) (l []blockdev.Device) {
	for _, d := range devs {
		l = append(l, d.(*blockdev.Memory).Snapshot())
	}
	return l
}

func runScrub(t *testing.T, devs []blockdev.Device, o ScrubOptions) (*Scrubbed, ScrubStats) {
	t.Helper()
	r, err := Scrub(sched.NewTask("scrub"), devs, o)
	if err != nil {
		t.Fatal(err)
	}
	sum, _ := r.Total()
	return r, sum
}

// clean wants a check and a second scrub to find nothing.
func clean(t *testing.T, devs []blockdev.Device) {
	t.Helper()
	r, err := check.Check(sched.NewTask("check"), devs[0], check.Options{Devices: devs[1:]})
	if err != nil || !r.Clean {
		t.Errorf("%v %v", err, r.Findings)
	}
	if _, sum := runScrub(t, devs, ScrubOptions{}); sum.Errors() != 0 || sum.Corrected != 0 || sum.Uncorrectable != 0 {
		t.Errorf("a second scrub: %+v", sum)
	}
}

// noise writes garbage over a device, but for what is before 1 MiB and the 64 KiB of the superblock
// copy.
func noise(t *testing.T, d blockdev.Device) {
	t.Helper()
	tk := sched.NewTask("noise")
	p := bytes.Repeat([]byte{7, 0x5a, 0, 9}, 16384)
	for off := int64(1 << 20); off < d.Size(); off += int64(len(p)) {
		if off == int64(format.SuperMirror(1)) {
			continue
		}
		if err := blockdev.Write(tk, d, p[:min(int64(len(p)), d.Size()-off)], off); err != nil {
			t.Fatal(err)
		}
	}
}

// A device full of garbage, but for its superblocks, is written anew from the others: each sector
// that is in use is counted once. Read-only the same is counted, and nothing is written.
func TestScrubDevice(t *testing.T) {
	for _, c := range []struct {
		profile string
		n       int
		bad     []int // one after the other
		with    int   // one that is bad at the same time, or the same
	}{{"raid1", 2, []int{0, 1}, -1}, {"raid10", 4, []int{2}, -1}, {"raid1c3", 3, []int{1, 2}, 0}} {
		profile := c.profile
		for _, i := range c.bad {
			devs := scrubbed(t, profile, c.n)
			noise(t, devs[i])
			if c.with >= 0 {
				noise(t, devs[c.with])
			}
			before := snapshots(devs)
			_, look := runScrub(t, devs, ScrubOptions{ReadOnly: true})
			for k := range devs {
				if !same(t, devs[k], before[k]) {
					t.Errorf("%s: read-only, it writes device %d", profile, k)
				}
			}
			r, sum := runScrub(t, devs, ScrubOptions{})
			d := r.Devices[i]
			if d.Csum != (d.Data)/4096-d.NoCsum || d.Verify != d.Tree/4096 || d.Csum == 0 || d.Verify == 0 || sum.Corrected != sum.Csum+sum.Verify || sum.Uncorrectable != 0 || len(r.Lost) > 0 {
				t.Errorf("%s device %d: %+v", profile, i, d)
			}
			if look != sum {
				t.Errorf("%s: read-only %+v, then %+v", profile, look, sum)
			}
			clean(t, devs)
		}
	}
}

func same(t *testing.T, a, b blockdev.Device) bool {
	t.Helper()
	const step = 1 << 20
	p, q := make([]byte, step), make([]byte, step)
	tk := sched.NewTask("same")
	for off := int64(0); off < a.Size(); off += step {
		if err := errors.Join(blockdev.Read(tk, a, p, off), blockdev.Read(tk, b, q, off)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p, q) {
			return false
		}
	}
	return true
}

// Of RAID5 a device, of RAID6 two, are made anew from the other units of their rows, and so is the
// parity on them.
func TestScrubParity(t *testing.T) {
	tk := sched.NewTask("test")
	load := func(name string, n int) (devs []blockdev.Device) {
		for i := range n {
			devs = append(devs, fstest.Load(t, tk, fmt.Sprintf("../../fs/testdata/%s-%d.blocks.gz", name, i+1)))
		}
		return devs
	}
	for _, c := range []struct {
		name string
		n    int
		bad  []int
	}{{"raid5", 3, []int{0}}, {"raid5", 3, []int{1}}, {"raid5", 3, []int{2}}, {"raid6", 4, []int{0, 1}}, {"raid6", 4, []int{1, 3}}, {"raid6", 4, []int{2}}} {
		devs := load(c.name, c.n)
		for _, i := range c.bad {
			noise(t, devs[i])
		}
		r, sum := runScrub(t, devs, ScrubOptions{})
		if sum.Csum == 0 || sum.Verify == 0 || sum.Parity == 0 || sum.Corrected != sum.Csum+sum.Verify+sum.Parity || sum.Uncorrectable != 0 {
			t.Errorf("%s %v: %+v %v", c.name, c.bad, sum, r.Lost)
		}
		clean(t, devs)
	}
	// Parity is not made of data that is bad: it may be what is left of the right data.
	devs := load("raid5", 3)
	_, seen, err := check.Examine(tk, devs[0], check.Options{Devices: devs[1:]})
	if err != nil {
		t.Fatal(err)
	}
	ch := seen.ChunkAt(seen.Data[0].Bytenr)
	row := (seen.Data[0].Bytenr - ch.Start) / format.StripeLen / 2
	for i := range 2 { // the data units of a row
		s := ch.Stripes[format.RowStripe(3, row, i)]
		if err := blockdev.Write(tk, s.Dev.Device, []byte{byte(i + 1)}, int64(s.Off+row*format.StripeLen+100)); err != nil {
			t.Fatal(err)
		}
	}
	before := snapshots(devs)
	r, sum := runScrub(t, devs, ScrubOptions{})
	if sum.Csum != 2 || sum.Uncorrectable != 2 || sum.Corrected != 0 || len(r.Lost) != 2 {
		t.Errorf("two units of a row of raid5 are bad: %+v", sum)
	}
	for i := range devs {
		if !same(t, devs[i], before[i]) {
			t.Errorf("device %d is written", i+1)
		}
	}
}

// What is bad on both copies is lost, and named; sectors that one of them has are not.
func TestScrubLost(t *testing.T) {
	devs := scrubbed(t, "raid1", 2)
	tk := sched.NewTask("test")
	_, seen, err := check.Examine(tk, devs[0], check.Options{Devices: devs[1:]})
	if err != nil {
		t.Fatal(err)
	}
	data := seen.Data[3]
	places, _ := seen.ChunkAt(data.Bytenr).Places(data.Bytenr)
	for i, sectors := range [][]int64{{0, 1, 2, 6}, {2, 3, 4}} { // of each copy
		for _, s := range sectors {
			if err := blockdev.Write(tk, places[i].Dev.Device, []byte("bad"), int64(places[i].Off)+4096*s+100); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, sum := runScrub(t, devs, ScrubOptions{})
	if sum.Csum != 7 || sum.Corrected != 5 || sum.Uncorrectable != 2 || len(r.Lost) != 2 {
		t.Errorf("%+v %v", sum, r.Lost)
	}
	for i, f := range r.Lost {
		if f.Place.Num(check.AtLogical) != data.Bytenr+2*4096 || f.Place.Num(check.AtLength) != 4096 || f.Place.Num(check.AtMirror) != uint64(i) {
			t.Errorf("lost: %v", f)
		}
	}
}

// A write that a device lost leaves a block of before there, whole but old: it is mended, whichever
// copy it is.
func TestScrubLostWrite(t *testing.T) {
	for old := range 2 {
		x := fstest.New(t, fstest.Devices(2), fstest.Size(128<<20), fstest.NoCheck(), fstest.MkfsOptions(func(o *mkfs.Options) {
			o.DataProfile, o.MetadataProfile = "raid1", "raid1"
		}))
		x.Create("/a").Close(x.T)
		x.Close()
		devs := append([]blockdev.Device{x.Dev}, x.More...)
		_, seen, err := check.Examine(x.T, devs[0], check.Options{Devices: devs[1:]})
		if err != nil {
			t.Fatal(err)
		}
		root, _ := seen.RootOf(format.FS_TREE_OBJECTID)
		places, _ := seen.ChunkAt(root.Bytenr).Places(root.Bytenr)
		n := seen.Peek(root.Bytenr, root.Generation, int(root.Level))
		n.SetGeneration(root.Generation - 1)
		n.UpdateCsum(seen.Super.CsumType)
		if err := blockdev.Write(x.T, places[old].Dev.Device, n, int64(places[old].Off)); err != nil {
			t.Fatal(err)
		}
		_, sum := runScrub(t, devs, ScrubOptions{})
		if want := uint64(seen.Super.NodeSize / 4096); sum.Verify != want || sum.Corrected != want || sum.Uncorrectable != 0 {
			t.Errorf("copy %d: %+v", old, sum)
		}
		clean(t, devs)
	}
}

// Superblocks are written from the newest of their device: one that is not whole, and one that a
// commit has missed.
func TestScrubSupers(t *testing.T) {
	for _, i := range []int{0, 1} {
		for _, stale := range []bool{false, true} {
			if stale && i == 0 {
				continue // then the other is the newest, and another commit
			}
			devs := scrubbed(t, "raid1", 2)
			tk := sched.NewTask("test")
			off := int64(format.SuperMirror(i))
			p := make([]byte, format.SuperSize)
			if err := blockdev.Read(tk, devs[1], p, off); err != nil {
				t.Fatal(err)
			}
			s := format.DecodeSuper(p)
			if s.Generation--; stale {
				s.Encode(p)
			} else {
				p[0x40] ^= 1
			}
			if err := blockdev.Write(tk, devs[1], p, off); err != nil {
				t.Fatal(err)
			}
			r, sum := runScrub(t, devs, ScrubOptions{})
			if sum.Super != 1 || r.Devices[1].Super != 1 || sum.Errors() != 1 || sum.Corrected+sum.Uncorrectable != 0 {
				t.Errorf("superblock %d, stale %v: %+v", i, stale, sum)
			}
			clean(t, devs)
		}
	}
}

// badDevice is a device with a sector that is not read until it is written; deaf, one that is read,
// and drops what is written there.
type badDevice struct {
	blockdev.Device
	off     int64
	written *bool
	deaf    bool
}

func (d badDevice) Submit(t *sched.Task, b *blockdev.Bio) {
	hit := b.Op != blockdev.OpFlush && b.Off <= d.off && d.off < b.Off+int64(b.Len())
	switch {
	case hit && b.Op == blockdev.OpWrite && d.deaf:
		b.EndIO(t, b)
		return
	case hit && b.Op == blockdev.OpWrite:
		*d.written = true
	case hit && b.Op == blockdev.OpRead && !*d.written && !d.deaf:
		b.Err = errors.New("medium error")
		b.EndIO(t, b)
		return
	}
	d.Device.Submit(t, b)
}

// A sector that the device does not read is written, of the megabyte around it no other. One that
// does not keep what is written is not corrected, and the scrub ends.
func TestScrubDevices(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		devs := scrubbed(t, "raid1", 2)
		tk := sched.NewTask("test")
		_, seen, err := check.Examine(tk, devs[0], check.Options{Devices: devs[1:]})
		if err != nil {
			t.Fatal(err)
		}
		data := seen.Data[3].Bytenr
		places, _ := seen.ChunkAt(data).Places(data)
		off := int64(places[1].Off) + 3*4096
		if deaf {
			if err := blockdev.Write(tk, devs[1], []byte("bad"), off); err != nil {
				t.Fatal(err)
			}
		}
		devs[1] = badDevice{devs[1], off, new(bool), deaf}
		_, sum := runScrub(t, devs, ScrubOptions{})
		want := ScrubStats{Data: sum.Data, Tree: sum.Tree, NoCsum: sum.NoCsum, Read: 1, Corrected: 1}
		if deaf {
			want.Read, want.Csum, want.Corrected, want.Uncorrectable = 0, 1, 0, 1
		}
		if sum != want {
			t.Errorf("deaf %v: have %+v want %+v", deaf, sum, want)
		}
		if !deaf {
			clean(t, devs)
		}
	}
}

// A scrub that is stopped says so; what it has written stays.
func TestScrubStopped(t *testing.T) {
	devs := scrubbed(t, "raid1", 2)
	noise(t, devs[1])
	asked, stop := 0, errors.New("stop")
	_, err := Scrub(sched.NewTask("scrub"), devs, ScrubOptions{Stopped: func() error {
		if asked++; asked == 5 {
			return stop
		}
		return nil
	}})
	if !errors.Is(err, stop) {
		t.Errorf("have %v", err)
	}
	runScrub(t, devs, ScrubOptions{})
	clean(t, devs)
}
