package dm

import (
	"testing"

	"btrlab/internal/blockdev"
)

// Each way in which a fault can be written wrong is refused, one at a time, and each right way is
// what it says.
func TestParseFaultTable(t *testing.T) {
	for spec, want := range map[string]Fault{
		"eio:read:1":    {Op: blockdev.OpRead, Nth: 1},
		"eio:write:3":   {Op: blockdev.OpWrite, Nth: 3},
		"eio:flush:20+": {Op: blockdev.OpFlush, Nth: 20, On: true},
	} {
		if have, err := ParseFault(spec); err != nil || have != want {
			t.Errorf("%s: have %+v, %v want %+v", spec, have, err, want)
		}
	}
	for _, spec := range []string{"", "eio", "eio:", "eio:read", "eio:read:", "eio:read:0", "eio:read:-1", "eio:read:x", "eio:read:1x", "eio:read:1++", "eio:read:+", "eio:trim:1", "eio::1", "enospc:read:1", ":read:1"} {
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
