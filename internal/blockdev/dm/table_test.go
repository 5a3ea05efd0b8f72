package dm

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// Each way in which a fault can be written wrong is refused, one at a time, and each right way is
// what it says.
func TestParseFaultTable(t *testing.T) {
	for spec, want := range map[string]Fault{
		"eio:read:1":    {Op: blockdev.OpRead, Nth: 1},
		"eio:write:3":   {Op: blockdev.OpWrite, Nth: 3},
		"eio:flush:20+": {Op: blockdev.OpFlush, Nth: 20, On: true},

		"enospc:write:2": {Op: blockdev.OpWrite, Nth: 2, Err: errno.ENOSPC},
		"torn:write:5":   {Op: blockdev.OpWrite, Nth: 5, Torn: true, On: true},
	} {
		if have, err := ParseFault(spec); err != nil || have != want {
			t.Errorf("%s: have %+v, %v want %+v", spec, have, err, want)
		}
	}
	for _, spec := range []string{"", "eio", "eio:", "eio:read", "eio:read:", "eio:read:0", "eio:read:-1", "eio:read:x", "eio:read:1x", "eio:read:1++", "eio:read:+", "eio:trim:1", "eio::1", "enospc:read:1", "torn:flush:1", "enodev:write:1", ":read:1"} {
		if have, err := ParseFault(spec); err == nil || have != (Fault{}) {
			t.Errorf("%q: have %+v, %v want an error", spec, have, err)
		}
	}
}

// A model with one parameter out of its bounds is refused, whatever the others are; at the bound it
// is taken.
func TestCheckTable(t *testing.T) {
	good := Params{Name: "good", Disks: 3, Channels: 2, Depth: 4, ChunkBytes: 4096, BytesPerSec: 1e6, GCBytes: 1, GCMin: 1, GCMax: 1, GCShape: 1}
	for _, k := range []struct {
		name string
		set  func(p *Params)
		ok   bool
	}{
		{"as it is", func(*Params) {}, true},
		{"no disk", func(p *Params) { p.Disks = 0 }, false},
		{"one disk", func(p *Params) { p.Disks = 1 }, true},
		{"no channel", func(p *Params) { p.Channels = 0 }, false},
		{"no depth", func(p *Params) { p.Depth = 0 }, false},
		{"one of each", func(p *Params) { p.Disks, p.Channels, p.Depth = 1, 1, 1 }, true},
		{"65536 channels", func(p *Params) { p.Disks, p.Channels = 4, 1<<14 }, true},
		{"more", func(p *Params) { p.Disks, p.Channels = 5, 1<<14 }, false},
		{"parity", func(p *Params) { p.Parity = true }, true},
		{"parity of two disks", func(p *Params) { p.Parity, p.Disks = true, 2 }, false},
		{"parity of small chunks", func(p *Params) { p.Parity, p.ChunkBytes = true, 4095 }, false},
		{"queues", func(p *Params) { p.Queues = -1 }, false},
		{"handle", func(p *Params) { p.Handle = -1 }, false},
		{"interrupt", func(p *Params) { p.Interrupt = -1 }, false},
		{"read", func(p *Params) { p.Read = -1 }, false},
		{"write", func(p *Params) { p.Write = -1 }, false},
		{"flush", func(p *Params) { p.Flush = -1 }, false},
		{"jitter", func(p *Params) { p.Jitter = -1 }, false},
		{"rate", func(p *Params) { p.BytesPerSec = -1 }, false},
		{"chunk", func(p *Params) { p.ChunkBytes = -1 }, false},
		{"shared", func(p *Params) { p.Shared, p.Disks = true, 1 }, true},
		{"shared without a rate", func(p *Params) { p.Shared, p.Disks, p.BytesPerSec = true, 1, 0 }, false},
		{"shared by two disks", func(p *Params) { p.Shared, p.Disks = true, 2 }, false},
		{"shared with a cache", func(p *Params) { p.Shared, p.Disks, p.CacheBytes = true, 1, 1 }, false},
		{"collection in no time", func(p *Params) { p.GCMin = 0 }, false},
		{"collection of less than its least", func(p *Params) { p.GCMin, p.GCMax = 2, 1 }, false},
		{"collection without a shape", func(p *Params) { p.GCShape = 0 }, false},
		{"no collection", func(p *Params) { p.GCBytes, p.GCMin, p.GCMax, p.GCShape = 0, 0, 0, 0 }, true},
	} {
		p := good
		if k.set(&p); (p.check() == nil) != k.ok {
			t.Errorf("%s: have %v, want ok %v", k.name, p.check(), k.ok)
		}
	}
}

// A torn write leaves its first half on the device, in sectors, over several vectors, and nothing
// that comes later reaches it.
func TestTorn(t *testing.T) {
	tk := sched.NewTask("test")
	mem := blockdev.NewMemory(1 << 20)
	f := NewFlakey(mem, Fault{Op: blockdev.OpWrite, Nth: 2, On: true, Torn: true})
	full := func(c byte, n int) []byte { return bytes.Repeat([]byte{c}, n) }
	if err := blockdev.Write(tk, f, full('a', 8192), 0); err != nil {
		t.Fatal(err)
	}
	torn := &blockdev.Bio{Op: blockdev.OpWrite, Off: 0, Vecs: [][]byte{full('b', 1024), full('c', 5120)}}
	if err := blockdev.Do(tk, f, torn); !errors.Is(err, errno.EIO) {
		t.Errorf("the torn write: %v", err)
	}
	if err := blockdev.Write(tk, f, full('d', 512), 8192); err == nil {
		t.Error("a write after the torn one works")
	}
	have := make([]byte, 16384)
	if err := blockdev.Read(tk, mem, have, 0); err != nil {
		t.Fatal(err)
	}
	if want := slices.Concat(full('b', 1024), full('c', 2048), full('a', 5120), make([]byte, 8192)); !bytes.Equal(have, want) {
		t.Errorf("on the device: %d b, %d c, %d a, %d d", bytes.Count(have, []byte("b")), bytes.Count(have, []byte("c")), bytes.Count(have, []byte("a")), bytes.Count(have, []byte("d")))
	}
}
