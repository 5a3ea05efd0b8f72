package volumes

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// several makes Volumes of devices of the given sizes, without chunks but the system's.
func several(t *testing.T, sizes ...uint64) (*Volumes, []*fakeDevice) {
	t.Helper()
	var members []Member
	var devs []*fakeDevice
	for i, size := range sizes {
		d := &fakeDevice{data: make([]byte, size), failAt: map[int64]error{}}
		sb := super(size)
		sb.NumDevices = uint64(len(sizes))
		sb.DevItem.Devid, sb.DevItem.UUID = uint64(i+1), format.UUID{7 + byte(i)}
		members, devs = append(members, Member{d, sb}), append(devs, d)
	}
	v, err := Open(members, false)
	if err != nil {
		t.Fatal(err)
	}
	return v, devs
}

// TestAllocDevices: a chunk takes the devices with most room, as many as its profile allows, and
// stripes as long as the last of them has room for.
func TestAllocDevices(t *testing.T) {
	for _, c := range []struct {
		profile uint64
		size    uint64
		devs    []uint64 // of the stripes
		length  uint64
	}{
		{0, 8 * mib, []uint64{3}, 8 * mib},
		{format.BlockGroupDup, 8 * mib, []uint64{3, 3}, 8 * mib},
		{format.BlockGroupRAID1, 8 * mib, []uint64{3, 1}, 8 * mib},
		{format.BlockGroupRAID1C3, 8 * mib, []uint64{3, 1, 4}, 8 * mib},
		{format.BlockGroupRAID1C4, 8 * mib, []uint64{3, 1, 4, 2}, 8 * mib},
		{format.BlockGroupRAID1C4, 1 << 30, []uint64{3, 1, 4, 2}, 19 * mib},
		{format.BlockGroupRAID0, 8 * mib, []uint64{3, 1, 4, 2}, 8 * mib},
		{format.BlockGroupRAID0, 1 << 30, []uint64{3, 1, 4, 2}, 4 * 19 * mib},
		{format.BlockGroupRAID10, 1 << 30, []uint64{3, 1, 4, 2}, 2 * 19 * mib},
	} {
		v, _ := several(t, 64*mib, 20*mib, 80*mib, 40*mib)
		k, err := v.AllocChunk(sched.NewTask("test"), format.BlockGroupData|c.profile, c.size)
		if err != nil {
			t.Fatal(err)
		}
		var devs []uint64
		for _, s := range k.Chunk.Stripes {
			devs = append(devs, s.Devid)
		}
		if fmt.Sprint(devs) != fmt.Sprint(c.devs) || k.Chunk.Length != c.length {
			t.Errorf("%#x: have devices %v, %d bytes, want %v, %d", c.profile, devs, k.Chunk.Length, c.devs, c.length)
		}
		if err := v.check(&k); err != nil {
			t.Error(err)
		}
	}
	v, _ := several(t, 64*mib, 64*mib)
	if _, err := v.AllocChunk(sched.NewTask("test"), format.BlockGroupData|format.BlockGroupRAID1C3, mib); err != errno.ENOSPC {
		t.Errorf("three copies on two devices: have %v want ENOSPC", err)
	}
}

// TestSplit: a bio over the units of a striped chunk is cut, in the middle of a vector too, and its
// end comes once, with the error of a piece.
func TestSplit(t *testing.T) {
	for _, profile := range []uint64{format.BlockGroupRAID0, format.BlockGroupRAID10} {
		for _, async := range []bool{false, true} {
			v, devs := several(t, 64*mib, 64*mib, 64*mib, 64*mib)
			for _, d := range devs {
				d.async = async
			}
			tk := sched.NewTask("test")
			k, err := v.AllocChunk(tk, format.BlockGroupData|profile, 4*mib)
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, 3*format.StripeLen)
			for i := range want {
				want[i] = byte(i / 4096 * 7)
			}
			at := k.Logical + format.StripeLen - 4096
			vecs := [][]byte{want[:100], want[100:100000], want[100000:]}
			if err := blockdev.Do(tk, v, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(at), Vecs: vecs}); err != nil {
				t.Fatal(err)
			}
			for mirror := range v.Mirrors(at) {
				have := make([]byte, len(want))
				if err := v.Read(tk, have, at, mirror); err != nil || !bytes.Equal(have, want) {
					t.Errorf("%#x: mirror %d has other bytes, %v", profile, mirror, err)
				}
			}
			have := make([]byte, len(want))
			b := &blockdev.Bio{Op: blockdev.OpRead, Off: int64(at), Vecs: [][]byte{have[:70000], have[70000:]}}
			if err := blockdev.Do(tk, v, b); err != nil || !bytes.Equal(have, want) || b.Off != int64(at) {
				t.Errorf("%#x: a read has other bytes, %v", profile, err)
			}
			second := k.locate(format.StripeLen)
			s := k.Chunk.Stripes[second.First]
			devs[s.Devid-1].failAt[int64(s.Offset+second.Off)] = errno.EIO
			err = blockdev.Do(tk, v, b)
			if profile == format.BlockGroupRAID0 && err == nil {
				t.Error("raid0: the read of a bad piece succeeds")
			}
			if profile == format.BlockGroupRAID10 && (err != nil || !bytes.Equal(have, want)) {
				t.Errorf("raid10: a bad piece is not read from the other mirror, %v", err)
			}
		}
	}
}

// TestRecover: each data unit of a row comes out of each choice of bad units.
func TestRecover(t *testing.T) {
	const data, size = 5, 64
	for _, parity := range []int{1, 2} {
		row := make([][]byte, data+parity)
		for i := range row {
			row[i] = make([]byte, size)
			for k := range row[i] {
				if i < data {
					row[i][k] = byte(i*31 + k*k + 1)
				}
			}
		}
		for i := range data {
			for k, b := range row[i] {
				row[data][k] ^= b
				if parity == 2 {
					row[data+1][k] ^= format.Multiply(b, 1<<i)
				}
			}
		}
		for x := range data {
			for y := range data + parity {
				if parity == 1 && y != x {
					continue
				}
				work := make([][]byte, len(row))
				for i := range row {
					if i != x && i != y {
						work[i] = bytes.Clone(row[i])
					}
				}
				if have := format.RecoverUnit(work, parity, x); !bytes.Equal(have, row[x]) {
					t.Errorf("parity %d: unit %d without %d too: other bytes", parity, x, y)
				}
			}
		}
	}
}

// TestSupersOfDevices: each device gets the superblocks with its own item, the primaries first.
func TestSupersOfDevices(t *testing.T) {
	v, devs := several(t, 128*mib, 32*mib)
	v.Devices()[1].SetBytesUsed(5 * mib)
	sb := super(128 * mib)
	sb.Generation = 9
	if err := v.WriteSupers(sched.NewTask("test"), sb, format.SuperMirrorMax); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]int64{{-1, 64 << 10, 64 * mib, -1}, {-1, 64 << 10, -1}} {
		if fmt.Sprint(devs[i].log) != fmt.Sprint(want) {
			t.Errorf("device %d: have %v want %v", i+1, devs[i].log, want)
		}
		var got format.Super
		got.Decode(devs[i].data[format.SuperOffset:])
		if got.DevItem.Devid != uint64(i+1) || got.Generation != 9 || got.DevItem.BytesUsed != []uint64{0, 5 * mib}[i] {
			t.Errorf("device %d: have devid %d generation %d used %d", i+1, got.DevItem.Devid, got.Generation, got.DevItem.BytesUsed)
		}
	}
}

// TestSupersFail: where the primary of a device cannot be written, no copy is newer than it is; a
// copy that cannot be written is no error, since the primary makes the state, but it is told.
func TestSupersFail(t *testing.T) {
	for _, fails := range []int64{64 << 10, 64 * mib} {
		v, devs := several(t, 128*mib, 128*mib)
		devs[0].failAt[fails] = errno.EIO
		sb := super(128 * mib)
		sb.Generation = 9
		var lost []string
		v.LostCopy = func(err error) { lost = append(lost, err.Error()) }
		err := v.WriteSupers(sched.NewTask("test"), sb, format.SuperMirrorMax)
		primary := fails == 64<<10
		if (err != nil) != primary {
			t.Errorf("the write at %d fails: have %v", fails, err)
		}
		if told := len(lost) == 1 && strings.Contains(lost[0], "superblock copy 1"); told == primary {
			t.Errorf("the write at %d fails: told of %q", fails, lost)
		}
		for i, d := range devs {
			var primary, second format.Super
			primary.Decode(d.data[format.SuperOffset:])
			second.Decode(d.data[format.SuperMirror(1):])
			if second.Generation > primary.Generation {
				t.Errorf("the write at %d fails: device %d has a copy of generation %d and a primary of %d", fails, i+1, second.Generation, primary.Generation)
			}
		}
	}
}

// TestSuperLogicalStriped: of a striped chunk the part is free of allocations that lies on a
// superblock copy, wherever its stripe has it, and with parity the row.
func TestSuperLogicalStriped(t *testing.T) {
	v, _ := several(t, 64*mib)
	const start, unit = 1 << 30, uint64(format.StripeLen)
	at := func(first, n uint64) format.Range[format.Logical] {
		return format.RangeOf(format.Logical(start+first*unit), n*unit)
	}
	for _, c := range []struct {
		flag uint64
		want []format.Range[format.Logical]
	}{
		// Stripe 1 has the copy at 64 MiB in its row 16.
		{format.BlockGroupRAID0, []format.Range[format.Logical]{at(16*4+1, 1)}},
		{format.BlockGroupRAID10, []format.Range[format.Logical]{at(16*2, 1)}},
		{format.BlockGroupRAID5, []format.Range[format.Logical]{at(16*3, 3)}},
		{format.BlockGroupRAID6, []format.Range[format.Logical]{at(16*2, 2)}},
	} {
		k := ChunkInfo{Logical: start, Chunk: chunk(format.BlockGroupData|c.flag, 0, 128*mib, 63*mib, 128*mib, 128*mib)}
		k.Chunk.Length = uint64(format.ProfileOf(c.flag).DataStripes(4)) * 8 * mib
		if got := v.SuperLogical(k); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%#x: have %v want %v", c.flag, got, c.want)
		}
	}
}
