package fs_test

import (
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// damage changes the superblock of the image on dev.
func damage(x *fstest.Fixture, dev blockdev.Device, f func(sb *format.Super)) {
	b := make([]byte, format.SuperSize)
	x.Must(blockdev.Read(x.T, dev, b, format.SuperOffset))
	var sb format.Super
	sb.Decode(b)
	f(&sb)
	sb.Encode(b)
	x.Must(blockdev.Write(x.T, dev, b, format.SuperOffset))
}

// TestOpenRefuses: what cannot be opened is refused in one clear line, and the image is left as it
// was.
func TestOpenRefuses(t *testing.T) {
	x := fstest.New(t, fstest.Size(64<<20))
	f := x.Create("/f")
	x.WriteAt(f, make([]byte, 100000), 0)
	x.Must(f.Close(x.T))
	x.Close()
	good := x.Dev.(*blockdev.Memory)
	var sb format.Super
	b := make([]byte, format.SuperSize)
	x.Must(blockdev.Read(x.T, good, b, format.SuperOffset))
	sb.Decode(b)

	for _, c := range []struct {
		name     string
		hurt     func(dev *blockdev.Memory) blockdev.Device
		readOnly bool // can still be opened for reading
		want     string
	}{
		{"foreign", func(d *blockdev.Memory) blockdev.Device {
			x.Must(blockdev.Write(x.T, d, make([]byte, 4096), format.SuperOffset))
			return d
		}, false, "bad magic"},
		{"tiny", func(d *blockdev.Memory) blockdev.Device { return blockdev.NewMemory(4096) }, false, "too small for a superblock"},
		{"truncated", func(d *blockdev.Memory) blockdev.Device {
			s := blockdev.NewMemory(d.Size() / 2)
			p := make([]byte, 1<<20)
			for off := int64(0); off < s.Size(); off += int64(len(p)) {
				x.Must(blockdev.Read(x.T, d, p, off))
				x.Must(blockdev.Write(x.T, s, p, off))
			}
			return s
		}, false, "device is too small"},
		{"superblock csum", func(d *blockdev.Memory) blockdev.Device {
			p := make([]byte, 1)
			x.Must(blockdev.Read(x.T, d, p, format.SuperOffset+0x80))
			p[0] ^= 1
			x.Must(blockdev.Write(x.T, d, p, format.SuperOffset+0x80))
			return d
		}, false, "bad csum"},
		{"incompat", func(d *blockdev.Memory) blockdev.Device {
			damage(x, d, func(sb *format.Super) { sb.IncompatFlags |= format.IncompatZoned })
			return d
		}, false, "unsupported feature"},
		{"restored dump", func(d *blockdev.Memory) blockdev.Device {
			damage(x, d, func(sb *format.Super) { sb.Flags |= format.SuperFlagMetadumpV2 })
			return d
		}, true, "image was restored by btrfs-image and has no file data: open read-only"},
		{"log tree", func(d *blockdev.Memory) blockdev.Device {
			damage(x, d, func(sb *format.Super) { sb.LogRoot = sb.Root })
			return d
		}, true, "replay log tree at"},
		{"root block", func(d *blockdev.Memory) blockdev.Device {
			hit(x, d, sb.Root)
			return d
		}, false, "bad checksum"},
		{"pointer loop", func(d *blockdev.Memory) blockdev.Device {
			damage(x, d, func(sb *format.Super) { sb.Root = sb.ChunkRoot })
			return d
		}, false, "root=1"},
		{"generation", func(d *blockdev.Memory) blockdev.Device {
			damage(x, d, func(sb *format.Super) { sb.Generation++ })
			return d
		}, false, "generation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := c.hurt(good.Snapshot())
			image := contents(x, dev)
			_, err := fs.Open(x.T, []blockdev.Device{dev}, fs.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("open: have %v, want one line with %q", err, c.want)
			} else if !strings.HasPrefix(err.Error(), dev.Name()+": ") {
				t.Errorf("open: %v does not name the device", err)
			}
			ro, err := fs.Open(x.T, []blockdev.Device{dev}, fs.Options{ReadOnly: true})
			if (err == nil) != c.readOnly {
				t.Errorf("open for reading: %v", err)
			}
			if err == nil {
				x.Must(ro.Close(x.T))
			}
			if contents(x, dev) != image {
				t.Error("the image was changed")
			}
		})
	}
}

// hit flips a byte in every copy of a tree block, which lies in a DUP chunk of a fresh image.
func hit(x *fstest.Fixture, dev *blockdev.Memory, bytenr uint64) {
	n := 0
	p := make(format.Node, 16384)
	for off := int64(1 << 20); off < dev.Size(); off += 16384 {
		x.Must(blockdev.Read(x.T, dev, p, off))
		if p.Bytenr() == bytenr && p.Csum() == p.ComputeCsum() {
			x.Must(blockdev.Write(x.T, dev, []byte{p[200] ^ 1}, off+200))
			n++
		}
	}
	if n == 0 {
		x.Fatalf("block %d is not on the device", bytenr)
	}
}

// contents is a checksum of a device.
func contents(x *fstest.Fixture, dev blockdev.Device) (sum uint32) {
	p := make([]byte, 1<<20)
	for off := int64(0); off < dev.Size(); off += int64(len(p)) {
		n := min(int64(len(p)), dev.Size()-off)
		x.Must(blockdev.Read(x.T, dev, p[:n], off))
		sum = sum*31 + format.CRC32C(p[:n])
	}
	return sum
}

// TestMirror: one bad copy of a DUP tree block is read around.
func TestMirror(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	x.WriteAt(f, []byte("content"), 0)
	x.Must(f.Close(x.T))
	x.Close()
	dev := x.Dev.(*blockdev.Memory).Snapshot()
	var sb format.Super
	b := make([]byte, format.SuperSize)
	x.Must(blockdev.Read(x.T, dev, b, format.SuperOffset))
	sb.Decode(b)
	p := make(format.Node, 16384)
	for off := int64(1 << 20); off < dev.Size(); off += 16384 {
		x.Must(blockdev.Read(x.T, dev, p, off))
		if p.Bytenr() == sb.Root && p.Csum() == p.ComputeCsum() {
			x.Must(blockdev.Write(x.T, dev, []byte{p[200] ^ 1}, off+200))
			break // the first copy only
		}
	}
	y, err := fs.Open(x.T, []blockdev.Device{dev}, fs.Options{ReadOnly: true})
	x.Must(err)
	if _, err := y.Stat(x.T, "/f"); err != nil {
		t.Error(err)
	}
	x.Must(y.Close(x.T))
}

// FuzzOpen opens damaged images: an error or a file system, never a panic and never a loop. The
// input is offset/value pairs that are applied to the metadata of a small image, with checksums
// made right again.
func FuzzOpen(f *testing.F) {
	sched.SetChecked(false)
	f.Add([]byte{0})
	f.Add([]byte{1, 0, 40, 255, 2, 1, 100, 7})
	f.Add([]byte{0, 0, 96, 200, 3, 2, 17, 0, 5, 0, 101, 9})
	t := sched.NewTask("fuzz")
	image, blocks := fuzzImage(f, t)
	f.Fuzz(func(tb *testing.T, in []byte) { useDamaged(tb, t, image.Snapshot(), blocks, in) })
}

// useDamaged applies the damage to the image and uses it.
func useDamaged(tb testing.TB, t *sched.Task, dev *blockdev.Memory, blocks []int64, in []byte) {
	touched := map[int64]bool{}
	for ; len(in) >= 4; in = in[4:] {
		off := blocks[int(in[0])%len(blocks)]
		at := (int64(in[1])<<8 | int64(in[2])) % 16384
		if err := blockdev.Write(t, dev, []byte{in[3]}, off+at); err != nil {
			tb.Fatal(err)
		}
		touched[off] = true
	}
	for off := range touched {
		p := make(format.Node, 16384)
		if err := blockdev.Read(t, dev, p, off); err != nil {
			tb.Fatal(err)
		}
		p.UpdateCsum(format.CsumCRC32C)
		if err := blockdev.Write(t, dev, p, off); err != nil {
			tb.Fatal(err)
		}
	}
	x, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{})
	if err != nil {
		return
	}
	list, _ := x.ReadDir(t, "/") // what can be read of it
	for _, e := range list {
		if g, err := x.OpenFile(t, "/"+e.Name, fs.O_RDONLY, 0); err == nil {
			_, _ = g.ReadAt(t, make([]byte, 8192), 0)
			_ = g.Close(t)
		}
		// Whatever of this a damaged image refuses.
		if g, err := x.OpenFile(t, "/"+e.Name, fs.O_RDWR, 0); err == nil {
			_, _ = g.WriteAt(t, make([]byte, 5000), 3000)
			_ = g.Truncate(t, 100)
			_ = g.Close(t)
		}
		_ = x.Rename(t, "/"+e.Name, "/moved")
	}
	_ = x.Mkdir(t, "/new", 0o755)
	_ = x.Sync(t)
	_ = x.Unlink(t, "/moved")
	_ = x.Close(t)
}

// fuzzImage makes a small image with metadata in one copy, and finds its tree blocks.
func fuzzImage(tb testing.TB, t *sched.Task) (*blockdev.Memory, []int64) {
	dev := blockdev.NewMemory(128 << 20)
	fail := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	fail(mkfs.Make(t, dev, mkfs.Options{MetadataProfile: "single", Now: fstest.Epoch}))
	x, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{})
	fail(err)
	for _, name := range []string{"/small", "/large"} {
		f, err := x.Create(t, name, 0o644)
		fail(err)
		_, err = f.WriteAt(t, make([]byte, len(name)*1000), 0)
		fail(err)
		fail(f.Close(t))
	}
	fail(x.Mkdir(t, "/dir", 0o755))
	fail(x.Symlink(t, "small", "/link"))
	fail(x.Close(t))
	var blocks []int64
	p := make(format.Node, 16384)
	for off := int64(1 << 20); off < dev.Size(); off += 16384 {
		fail(blockdev.Read(t, dev, p, off))
		if p.Bytenr() != 0 && p.Nritems() > 0 && p.Csum() == p.ComputeCsum() {
			blocks = append(blocks, off)
		}
	}
	return dev, blocks
}
