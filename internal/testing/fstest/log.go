package fstest

// File systems whose fsync writes a log.

import (
	"bytes"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// Logging opens with a policy whose fsync writes a log.
func Logging(opts ...Option) []Option {
	return append(opts, Policy("locked"))
}

// Recovered opens the device as it is now, after a loss of power, and reads its files.
func Recovered(tb testing.TB, t *sched.Task, dev *blockdev.Memory) Tree {
	tb.Helper()
	f, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{FirstFit: true, CheckQuiescence: true})
	if err != nil {
		tb.Fatal(err)
	}
	m, err := ReadTree(t, f)
	if err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(t); err != nil {
		tb.Fatal(err)
	}
	r, err := check.Check(t, dev, check.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	if !r.Clean {
		tb.Fatalf("%d findings, first %v", len(r.Findings), r.Findings[0])
	}
	return m
}

// SuperOn reads the superblock on the device.
func SuperOn(tb testing.TB, t *sched.Task, dev blockdev.Device) *format.Super {
	tb.Helper()
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(t, dev, b, format.SuperOffset); err != nil {
		tb.Fatal(err)
	}
	sb := new(format.Super)
	sb.Decode(b)
	return sb
}

// OneHash are n names of 255 bytes with one hash: a CRC does not see its polynomial, so any of 50
// places may have it or not.
func OneHash(n int) (names []string) {
	poly := []byte{0xf1, 0x76, 0xec, 0x05, 0x01} // of CRC32C, first bit first
	for i := range n {
		b := bytes.Repeat([]byte("a"), 255)
		for bit := range 50 {
			for k := range poly {
				if i>>bit&1 == 1 {
					b[5*bit+k] ^= poly[k]
				}
			}
		}
		names = append(names, string(b))
	}
	return names
}

// OneCopy makes a file system whose tree blocks have one copy, so that one failed write of a block
// counts, and which uses free space again at once.
func OneCopy(opts ...Option) []Option {
	return Logging(append(opts, Size(64<<20), FSOptions(func(o *fs.Options) { o.FirstFit = true }),
		MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile = "single" }))...)
}
