package volumes

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

const mib = 1 << 20

// fakeDevice keeps bytes in memory, records the order of writes and flushes, and fails where told.
type fakeDevice struct {
	data   []byte
	log    []int64 // offset of each write, -1 for a flush
	failAt map[int64]error
	async  bool // ends come on another task

	mu       sync.Mutex
	failRead bool
	each     func(b *blockdev.Bio)       // if set, is told of each bio
	hold     func(end func()) (yes bool) // if set, may keep the end of a bio
}

func (d *fakeDevice) Name() string { return "fake" }
func (d *fakeDevice) Size() int64  { return int64(len(d.data)) }
func (d *fakeDevice) Close() error { return nil }
func (d *fakeDevice) Submit(t *sched.Task, b *blockdev.Bio) {
	d.move(b)
	switch {
	case d.hold != nil && d.hold(func() { b.EndIO(t, b) }):
	case d.async:
		t.Go("end", func(t *sched.Task) { b.EndIO(t, b) })
	default:
		b.EndIO(t, b)
	}
}

func (d *fakeDevice) move(b *blockdev.Bio) {
	d.mu.Lock() // the bios of a row come from several tasks
	defer d.mu.Unlock()
	if d.each != nil {
		d.each(b)
	}
	switch b.Op {
	case blockdev.OpFlush:
		d.log = append(d.log, -1)
	case blockdev.OpWrite:
		d.log = append(d.log, b.Off)
	}
	off := b.Off
	if b.Err = d.failAt[b.Off]; d.failRead && b.Op == blockdev.OpRead {
		b.Err = errno.EIO
	}
	for _, p := range b.Vecs {
		if b.Err == nil && b.Op == blockdev.OpWrite {
			copy(d.data[off:], p)
		}
		if b.Err == nil && b.Op == blockdev.OpRead {
			copy(p, d.data[off:])
		}
		off += int64(len(p))
	}
}

var devUUID = format.UUID{7}

func chunk(typ, length uint64, offs ...uint64) format.Chunk {
	c := format.Chunk{Length: length, Owner: 2, StripeLen: format.StripeLen, Type: typ, SectorSize: 4096, SubStripes: 1}
	for _, o := range offs {
		c.Stripes = append(c.Stripes, format.Stripe{Devid: 1, Offset: o, DevUUID: devUUID})
	}
	return c
}

// raid1 is a system chunk with its second copy on device 2.
func raid1(length, first, second uint64) format.Chunk {
	c := chunk(format.BlockGroupSystem|format.BlockGroupRAID1, length, first, second)
	c.Stripes[1].Devid = 2
	return c
}

func sysArray(logical uint64, c format.Chunk) []byte {
	b := make([]byte, format.KeySize+c.Size())
	format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: logical}.Encode(b)
	c.Encode(b[format.KeySize:])
	return b
}

func super(size uint64) *format.Super {
	return &format.Super{
		NumDevices: 1, SectorSize: 4096, NodeSize: 16384, TotalBytes: size,
		DevItem:       format.DevItem{Devid: 1, TotalBytes: size, UUID: devUUID},
		SysChunkArray: sysArray(mib, chunk(format.BlockGroupSystem, 4*mib, mib)),
	}
}

func open(t *testing.T, size int) (*Volumes, *fakeDevice) {
	t.Helper()
	d := &fakeDevice{data: make([]byte, size), failAt: map[int64]error{}}
	v, err := Open([]Member{{d, super(uint64(size))}}, false)
	if err != nil {
		t.Fatal(err)
	}
	return v, d
}

func TestOpenRefuses(t *testing.T) {
	const size = 64 * mib
	for _, c := range []struct {
		name, want string
		change     func(*format.Super)
	}{
		{"short device", "shorter than its file system", func(s *format.Super) { s.DevItem.TotalBytes = size + 4096 }},
		{"two devices", "file system of 2 devices, have 1 (devid 1): name the others with --device", func(s *format.Super) { s.NumDevices = 2 }},
		{"torn array", "bad sys_chunk_array", func(s *format.Super) { s.SysChunkArray = s.SysChunkArray[:50] }},
		{"raid1 on one device", "on another device", func(s *format.Super) {
			s.SysChunkArray = sysArray(mib, raid1(mib, mib, 8*mib))
		}},
		{"not system", "want system", func(s *format.Super) { s.SysChunkArray = sysArray(mib, chunk(format.BlockGroupData, mib, mib)) }},
		{"stripe count", "bad stripe count", func(s *format.Super) {
			s.SysChunkArray = sysArray(mib, chunk(format.BlockGroupSystem|format.BlockGroupDup, mib, mib))
		}},
		{"out of device", "out of device", func(s *format.Super) {
			s.SysChunkArray = sysArray(mib, chunk(format.BlockGroupSystem, 4*mib, 61*mib))
		}},
		{"huge stripe offset", "out of device", func(s *format.Super) {
			s.SysChunkArray = sysArray(mib, chunk(format.BlockGroupSystem, 4*mib, ^uint64(0)&^4095))
		}},
		{"wraps", "wraps", func(s *format.Super) {
			s.SysChunkArray = sysArray(^uint64(4095), chunk(format.BlockGroupSystem, 4*mib, mib))
		}},
		{"many stripes", "bad sys_chunk_array", func(s *format.Super) {
			s.SysChunkArray[format.KeySize+44], s.SysChunkArray[format.KeySize+45] = 0xff, 0xff
		}},
	} {
		s := super(size)
		c.change(s)
		_, err := Open([]Member{{&fakeDevice{data: make([]byte, size)}, s}}, false)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: have error %v want %q", c.name, err, c.want)
		}
	}
}

func TestAddOverlap(t *testing.T) {
	v, _ := open(t, 64*mib)
	if err := v.Add(mib, chunk(format.BlockGroupSystem, 4*mib, mib)); err != nil {
		t.Errorf("the same chunk again: %v", err)
	}
	if err := v.Add(3*mib, chunk(format.BlockGroupData, 4*mib, 16*mib)); err == nil {
		t.Error("logical overlap accepted")
	}
	if err := v.Add(16*mib, chunk(format.BlockGroupData, 4*mib, 4*mib)); err == nil {
		t.Error("physical overlap accepted")
	}
	if err := v.Add(16*mib, chunk(format.BlockGroupMetadata|format.BlockGroupDup, 4*mib, 5*mib, 6*mib)); err == nil {
		t.Error("overlap of a chunk's own stripes accepted")
	}
	if n := len(v.Chunks()); n != 1 {
		t.Errorf("have %d chunks want 1", n)
	}
}

func TestMirrors(t *testing.T) {
	for _, async := range []bool{false, true} {
		v, d := open(t, 64*mib)
		d.async = async
		tk := sched.NewTask("test")
		const logical = 16 * mib
		if err := v.Add(logical, chunk(format.BlockGroupMetadata|format.BlockGroupDup, 4*mib, 8*mib, 16*mib)); err != nil {
			t.Fatal(err)
		}
		if m := v.Mirrors(logical + 5); m != 2 {
			t.Fatalf("have %d mirrors want 2", m)
		}
		if m := v.Mirrors(logical - 1); m != 0 {
			t.Fatalf("have %d mirrors outside of any chunk want 0", m)
		}
		data := bytes.Repeat([]byte{0xa5}, 8192)
		if err := v.Write(tk, data, logical+4096); err != nil {
			t.Fatal(err)
		}
		for _, off := range []int{8*mib + 4096, 16*mib + 4096} {
			if !bytes.Equal(d.data[off:off+8192], data) {
				t.Errorf("mirror at %d not written", off)
			}
		}
		// A read that fails on the first mirror comes from the second.
		d.failAt[8*mib+4096] = errno.EIO
		p := make([]byte, 8192)
		b := &blockdev.Bio{Op: blockdev.OpRead, Off: logical + 4096, Vecs: [][]byte{p[:100], p[100:]}}
		if err := blockdev.Do(tk, v, b); err != nil || !bytes.Equal(p, data) {
			t.Errorf("read with a bad first mirror: %v", err)
		}
		if b.Off != logical+4096 {
			t.Errorf("bio offset changed to %d", b.Off)
		}
		if err := v.Read(tk, p, logical+4096, 0); !errors.Is(err, errno.EIO) || !strings.Contains(err.Error(), "mirror 0") {
			t.Errorf("read of the bad mirror: %v", err)
		}
		if err := v.Read(tk, p, logical+4096, 1); err != nil {
			t.Errorf("read of the good mirror: %v", err)
		}
		// A block that is bad on all its mirrors makes its reader ask for one more: there is none.
		if err := v.Read(tk, p, logical+4096, 2); !errors.Is(err, errno.EIO) || !strings.Contains(err.Error(), "mirror 2") {
			t.Errorf("read of a third mirror: %v", err)
		}
		// A write that fails on one mirror fails, after both have ended.
		if err := v.Write(tk, data, logical+4096); !errors.Is(err, errno.EIO) {
			t.Errorf("write with a bad mirror: %v", err)
		}
		// The device recovers: the failure is not the next request's, which may be the same again.
		delete(d.failAt, 8*mib+4096)
		if err := v.Write(tk, data, logical+4096); err != nil {
			t.Errorf("write after the mirror has recovered: %v", err)
		}
		if err := v.Write(tk, data, logical+4*mib-8192); err != nil {
			t.Errorf("write up to the chunk's end: %v", err)
		}
		if err := v.Write(tk, data, logical+4*mib-4096); !errors.Is(err, errno.EIO) {
			t.Errorf("write across the chunk's end: %v", err)
		}
		if err := v.Write(tk, data, 40*mib); !errors.Is(err, errno.EIO) {
			t.Errorf("write without chunk: %v", err)
		}
	}
}

func TestWriteSupers(t *testing.T) {
	v, d := open(t, 128*mib)
	sb := super(128 * mib)
	sb.Generation = 9
	if err := v.WriteSupers(sched.NewTask("test"), sb, format.SuperMirrorMax); err != nil {
		t.Fatal(err)
	}
	want := []int64{-1, 64 << 10, 64 * mib, -1}
	if len(d.log) != len(want) {
		t.Fatalf("have %v want %v", d.log, want)
	}
	for i := range want {
		if d.log[i] != want[i] {
			t.Fatalf("have %v want %v", d.log, want)
		}
	}
	for _, off := range want[1:3] {
		b := d.data[off : off+format.SuperSize]
		var got format.Super
		got.Decode(b)
		if !format.SuperCsumOK(b) || got.Bytenr != uint64(off) || got.Generation != 9 {
			t.Errorf("bad copy at %d: bytenr %d generation %d", off, got.Bytenr, got.Generation)
		}
	}
}

func TestAllocChunk(t *testing.T) {
	v, _ := open(t, 64*mib)
	tk := sched.NewTask("test")
	alloc := func(typ, size, wantLogical, wantSize uint64, wantOff ...uint64) {
		t.Helper()
		used, free := v.BytesUsed()[0], v.FreeDeviceBytes()
		c, err := v.AllocChunk(tk, typ, size)
		if err != nil {
			t.Fatal(err)
		}
		if c.Logical != wantLogical || c.Chunk.Length != wantSize {
			t.Errorf("have %d+%d want %d+%d", c.Logical, c.Chunk.Length, wantLogical, wantSize)
		}
		for i, o := range wantOff {
			if c.Chunk.Stripes[i].Offset != o {
				t.Errorf("stripe %d: have %d want %d", i, c.Chunk.Stripes[i].Offset, o)
			}
		}
		n := wantSize * uint64(len(wantOff))
		if v.BytesUsed()[0] != used+n || v.FreeDeviceBytes() != free-n {
			t.Errorf("used %d free %d, want %d %d", v.BytesUsed()[0], v.FreeDeviceBytes(), used+n, free-n)
		}
		if got, ok := v.Lookup(wantLogical + wantSize - 1); !ok || got.Logical != wantLogical {
			t.Errorf("chunk %d not found", wantLogical)
		}
	}
	if f := v.FreeDeviceBytes(); f != 59*mib {
		t.Fatalf("have %d free want %d", f, 59*mib)
	}
	alloc(format.BlockGroupData, 8*mib+5, 5*mib, 8*mib, 5*mib)
	alloc(format.BlockGroupMetadata|format.BlockGroupDup, 8*mib, 13*mib, 8*mib, 13*mib, 21*mib)
	alloc(format.BlockGroupMetadata|format.BlockGroupDup, 1<<30, 21*mib, 17*mib+mib/2, 29*mib, 46*mib+mib/2)
	if _, err := v.AllocChunk(tk, format.BlockGroupData, 8*mib); err != errno.ENOSPC {
		t.Errorf("full device: %v", err)
	}
	// A chunk that is taken back leaves its hole; one stripe of a dup chunk may lie in each of two
	// holes.
	v.Remove(tk, 5*mib)
	alloc(format.BlockGroupData, 6*mib, 21*mib+17*mib+mib/2, 6*mib, 5*mib)
	alloc(format.BlockGroupData, 1<<30, 44*mib+mib/2, 2*mib, 11*mib)
}

func TestDupInTwoHoles(t *testing.T) {
	of := format.RangeOf[format.Physical]
	holes := []hole{of(mib, 10*mib), of(20*mib, 7*mib), of(40*mib, 3*mib)}
	if n := largestStripe(holes, 2); n != 7*mib {
		t.Errorf("have %d want %d", n, 7*mib)
	}
	if n := largestStripe(holes, 1); n != 10*mib {
		t.Errorf("have %d want %d", n, 10*mib)
	}
	if n := largestStripe([]hole{of(mib, 10*mib), of(20*mib, mib)}, 2); n != 5*mib {
		t.Errorf("have %d want %d", n, 5*mib)
	}
}

func TestSuperLogical(t *testing.T) {
	v, _ := open(t, 256*mib)
	c := ChunkInfo{Logical: 1 << 30, Chunk: chunk(format.BlockGroupMetadata|format.BlockGroupDup, 32*mib, 40*mib, 128*mib)}
	got := v.SuperLogical(c)
	want := format.RangeOf[format.Logical](1<<30+24*mib, 64<<10)
	if len(got) != 1 || got[0] != want {
		t.Errorf("have %v want %v", got, want)
	}
	c = ChunkInfo{Logical: 1 << 30, Chunk: chunk(format.BlockGroupData, 32*mib, 128*mib)}
	if got := v.SuperLogical(c); len(got) != 0 {
		t.Errorf("have %v want none", got)
	}
}

func BenchmarkSubmitWrite(b *testing.B) {
	sched.SetChecked(false)
	d := &nullDevice{}
	v, err := Open([]Member{{d, super(64 * mib)}}, false)
	if err != nil {
		b.Fatal(err)
	}
	tk := sched.NewTask("bench")
	bio := &blockdev.Bio{Op: blockdev.OpWrite, Off: 2 * mib, Vecs: [][]byte{make([]byte, 4096)},
		EndIO: func(*sched.Task, *blockdev.Bio) {}}
	b.ReportAllocs()
	for b.Loop() {
		v.Submit(tk, bio)
	}
}

type nullDevice struct{}

func (nullDevice) Name() string                          { return "null" }
func (nullDevice) Size() int64                           { return 64 * mib }
func (nullDevice) Close() error                          { return nil }
func (nullDevice) Submit(t *sched.Task, b *blockdev.Bio) { b.EndIO(t, b) }
