package rescue_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// memory is a Sink that keeps what comes.
type memory struct {
	files map[string]string // path -> owner, mode, contents, target
	dirs  map[string]bool
}

func newMemory() *memory { return &memory{map[string]string{}, map[string]bool{}} }

func (m *memory) Enter(o *rescue.Object) error { m.dirs[o.Path] = true; return nil }
func (m *memory) Leave(*rescue.Object) error   { return nil }
func (m *memory) Has(*rescue.Object) bool      { return false }
func (m *memory) Link(path, first string) error {
	m.files[path] = "link " + first
	return nil
}

func (m *memory) Put(o *rescue.Object) error {
	text := fmt.Sprintf("%o %d:%d", o.Mode, o.UID, o.GID)
	for _, x := range o.Xattrs {
		text += fmt.Sprintf(" %s=%s", x.Name, x.Value)
	}
	if o.Target != "" {
		text += " -> " + o.Target
	}
	if o.Data != nil {
		p := make([]byte, o.Size)
		end := uint64(0)
		err := o.Data(func(off uint64, b []byte) error {
			if off < end || off+uint64(len(b)) > o.Size {
				return fmt.Errorf("%s: bytes from %d on, after those up to %d, of %d", o.Path, off, end, o.Size)
			}
			end = off + uint64(copy(p[off:], b))
			return nil
		})
		if err != nil {
			return err
		}
		text += " " + string(p)
	}
	m.files[o.Path] = text
	return nil
}

// sample is an image with one of everything, in several commits, and what a copy of it has.
func sample(t *testing.T) *fstest.Fixture {
	x := fstest.New(t, fstest.Size(160<<20), fstest.NoCheck())
	write := func(path string, p []byte) {
		f := x.Create(path)
		x.WriteAt(f, p, 0)
		x.Must(f.Close(x.T))
	}
	dir := func(path string) { x.Must(x.FS.Mkdir(x.T, path, 0o755)) }
	dir("/a")
	dir("/a/b")
	for i := range 120 {
		write(fmt.Sprintf("/a/small%d", i), bytes.Repeat([]byte{byte('a' + i%26)}, 200+i))
		if i%3 == 0 {
			write(fmt.Sprintf("/a/b/big%d", i), bytes.Repeat([]byte{byte(i + 1)}, 3000*(i+1)))
		}
	}
	x.Must(x.FS.Sync(x.T))
	for i := range 40 {
		dir(fmt.Sprintf("/d%d", i))
		write(fmt.Sprintf("/d%d/f", i), []byte(strings.Repeat("text ", 100+i)))
		if i%8 == 0 {
			x.Must(x.FS.Sync(x.T))
		}
	}
	x.Must(x.FS.Link(x.T, "/a/b/big30", "/a/hard"))
	x.Must(x.FS.Symlink(x.T, "b/big30", "/a/symlink"))
	x.Must(x.FS.Mknod(x.T, "/a/fifo", format.S_IFIFO|0o600, 0))
	x.Must(x.FS.Chown(x.T, "/a/small1", 1000, 100))
	x.Must(x.FS.Setxattr(x.T, "/a/small2", "user.k", []byte("value")))
	sparse := x.Create("/a/sparse")
	x.WriteAt(sparse, bytes.Repeat([]byte("s"), 8192), 1<<20)
	x.Must(sparse.Truncate(x.T, 3<<20))
	x.Must(x.FS.Subvolume(x.T, "/sv", 0o755))
	for i := range 20 {
		write(fmt.Sprintf("/sv/s%d", i), bytes.Repeat([]byte{byte(i + 1)}, 5000))
	}
	x.Must(x.FS.Snapshot(x.T, "/sv", "/snap", true))
	x.Must(x.FS.SetCompress(x.T, fstest.Must(compress.Parse("zstd"))))
	write("/packed", bytes.Repeat([]byte("0123456789abcdef"), 20000))
	x.Must(x.FS.Sync(x.T))
	for i := range 5 {
		write(fmt.Sprintf("/late%d", i), bytes.Repeat([]byte{byte(i + 1)}, 9000))
		x.Must(x.FS.Sync(x.T))
	}
	return x
}

// copyOf copies what is left on dev, and returns the lines about what is not whole.
func copyOf(t *testing.T, x *fstest.Fixture, dev blockdev.Device, o rescue.Options, co rescue.CopyOptions) (*memory, rescue.Summary, map[string]string) {
	t.Helper()
	im, err := rescue.Open(x.T, []blockdev.Device{dev}, o)
	if err != nil {
		t.Fatal(err)
	}
	m, lines := newMemory(), map[string]string{}
	co.Report = func(r rescue.Report) { lines[r.Path] = r.Why }
	sum, err := im.Copy(m, co)
	if err != nil {
		t.Fatal(err)
	}
	return m, sum, lines
}

// TestCopy destroys one thing after the other in an image. What the copy has is right, or it says
// that it is not; and nothing is missing without a word.
func TestCopy(t *testing.T) {
	x := sample(t)
	base := x.Dev.(*blockdev.Memory).Snapshot()
	want, sum, lines := copyOf(t, x, base.Snapshot(), rescue.Options{}, rescue.CopyOptions{})
	if sum.Partial+sum.Lost > 0 || sum.Snapshots != 1 || len(want.files) != int(sum.Whole) || sum.Whole < 200 {
		t.Fatalf("the sound image: %+v %v", sum, lines)
	}
	for path, text := range map[string]string{"a/symlink": "120777 0:0 -> b/big30", "a/fifo": "10600 0:0", "a/b/big30": "100644 0:0 " + strings.Repeat("\x1f", 93000),
		"a/hard": "link a/b/big30", "packed": "100644 0:0 " + strings.Repeat("0123456789abcdef", 20000)} {
		if want.files[path] != text {
			t.Errorf("%s: have %.100q want %.100q", path, want.files[path], text)
		}
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			dev := base.Snapshot()
			v := newVictim(t, x.T, dev)
			if v.im.Leaves(format.FS_TREE_OBJECTID) < 5 {
				t.Fatalf("the sample has %d leaves, want 5", v.im.Leaves(format.FS_TREE_OBJECTID))
			}
			k.do(v)
			before := contents(t, x, dev)
			have, sum, lines := copyOf(t, x, dev, rescue.Options{}, rescue.CopyOptions{})
			if !bytes.Equal(before, contents(t, x, dev)) {
				t.Error("the image has changed")
			}
			for _, path := range slices.Sorted(maps.Keys(want.files)) {
				if _, known := lines[path]; !known && have.files[path] != want.files[path] {
					t.Errorf("%s: have %.60q want %.60q, without a word", path, have.files[path], want.files[path])
				}
			}
			if hurt := sum.Partial + sum.Lost; (hurt > 0) != k.hurts || hurt > 100 {
				t.Errorf("%d files are not whole: %+v\n%v", hurt, sum, lines)
			}
		})
	}
}

// contents is the first 100 MiB of a device, where all lies.
func contents(t *testing.T, x *fstest.Fixture, dev blockdev.Device) []byte {
	t.Helper()
	p := make([]byte, 100<<20)
	x.Must(blockdev.Read(x.T, dev, p, 0))
	return p
}

// TestGeneration: an older state is read as it was, by the number of its transaction.
func TestGeneration(t *testing.T) {
	x := sample(t)
	v := newVictim(t, x.T, x.Dev)
	newest := v.im.Super().Generation
	for back := uint64(1); back <= 3; back++ {
		m, sum, lines := copyOf(t, x, x.Dev, rescue.Options{Generation: newest - back}, rescue.CopyOptions{Snapshots: true})
		if sum.Lost > 0 {
			t.Errorf("generation %d: %+v %v", newest-back, sum, lines)
		}
		late := 0
		for path := range m.files {
			if strings.HasPrefix(path, "late") {
				late++
			}
		}
		if _, ok := m.files["snap/s1"]; late >= 5 || late < 5-int(back) || !ok {
			t.Errorf("generation %d: %d late files, want at most 4 and at least %d; a snapshot: %v", newest-back, late, 5-back, ok)
		}
	}
}

// TestFresh: of an image that nobody has written to since it was made, nothing is missing. Its
// superblock has slots for backup roots that are empty, which are no older state; and where tree
// blocks have 4096 bytes, a superblock looks like one, also to a scan.
func TestFresh(t *testing.T) {
	tk := sched.NewTask("test")
	for _, size := range []int{4096, 16384} {
		dev := blockdev.NewMemory(128 << 20)
		if err := mkfs.Make(tk, dev, mkfs.Options{NodeSize: size}); err != nil {
			t.Fatal(err)
		}
		for _, scan := range []bool{false, true} {
			im, err := rescue.Open(tk, []blockdev.Device{dev}, rescue.Options{Scan: scan})
			if err != nil {
				t.Fatal(err)
			}
			var lost []string
			if _, err := im.Copy(newMemory(), rescue.CopyOptions{Report: func(r rescue.Report) { lost = append(lost, r.Path+": "+r.Why) }}); err != nil {
				t.Fatal(err)
			}
			if len(im.Notes()) > 0 || len(lost) > 0 {
				t.Errorf("node size %d, scan %v: %q %q", size, scan, im.Notes(), lost)
			}
			trees, err := im.Trees()
			if err != nil {
				t.Fatal(err)
			}
			for _, tr := range trees {
				if tr.ID >= format.FIRST_FREE_OBJECTID && tr.ID <= format.LAST_FREE_OBJECTID {
					t.Errorf("node size %d, scan %v: a tree %d", size, scan, tr.ID)
				}
			}
		}
	}
}

// TestTrees: a scan lists the trees with the roots that are left of older states.
func TestTrees(t *testing.T) {
	x := sample(t)
	im, err := rescue.Open(x.T, []blockdev.Device{x.Dev}, rescue.Options{Scan: true})
	if err != nil {
		t.Fatal(err)
	}
	trees, err := im.Trees()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[uint64]rescue.TreeFound{}
	for _, tr := range trees {
		ids[tr.ID] = tr
	}
	for _, id := range []uint64{1, 2, 3, 4, 5, 7, 10, 256, 257} {
		if tr := ids[id]; tr.Blocks == 0 || !tr.InRootTree || tr.Root == 0 {
			t.Errorf("tree %d: %+v", id, tr)
		}
	}
	bytenr, generation := im.Root(format.FS_TREE_OBJECTID)
	if tr := ids[5]; tr.Root != bytenr || tr.Newest != generation || tr.Level != 1 || len(tr.Generations) < 2 {
		t.Errorf("tree 5: %+v, want the root %d of generation %d", tr, bytenr, generation)
	}
}

// TestFixSuper: what is not whole is written anew, and nothing else.
func TestFixSuper(t *testing.T) {
	x := sample(t)
	dev := x.Dev.(*blockdev.Memory).Snapshot()
	whole := contents(t, x, dev)
	fix := func() []image.SuperCopy {
		t.Helper()
		fixed, err := rescue.FixSuper(x.T, []blockdev.Device{dev})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole, contents(t, x, dev)) {
			t.Error("the device is not as it was before the damage")
		}
		return fixed
	}
	if fixed := fix(); len(fixed) != 0 {
		t.Errorf("nothing is to be done, have %v", fixed)
	}
	v := newVictim(t, x.T, dev)
	for _, n := range []int{0, 1} {
		v.write([]byte("torn"), int64(format.SuperMirror(n))+300)
		if fixed := fix(); len(fixed) != 1 || fixed[0].Copy != n {
			t.Errorf("copy %d: have %v", n, fixed)
		}
	}
	v.supers(3)
	if _, err := rescue.FixSuper(x.T, []blockdev.Device{dev}); err == nil || !strings.Contains(err.Error(), "no superblock is whole") {
		t.Errorf("without a whole one: %v", err)
	}
}

// TestOlderRoot: the superblock points at an earlier transaction, which a mount then finds.
func TestOlderRoot(t *testing.T) {
	x := sample(t)
	dev := x.Dev.(*blockdev.Memory).Snapshot()
	newest := newVictim(t, x.T, dev).im.Super().Generation
	if g, err := rescue.OlderRoot(x.T, []blockdev.Device{dev}, newest+7); err == nil {
		t.Errorf("generation %d, of a transaction that was not", g)
	}
	g, err := rescue.OlderRoot(x.T, []blockdev.Device{dev}, 0)
	if err != nil || g != newest-1 {
		t.Fatalf("have %d, %v, want %d", g, err, newest-1)
	}
	for i := range 2 {
		if _, s := super(t, x.T, dev, i); s.Generation != g || s.LogRoot != 0 {
			t.Errorf("copy %d has generation %d", i, s.Generation)
		}
	}
	f, err := fs.Open(x.T, []blockdev.Device{dev}, fs.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stat(x.T, "/a/b/big30"); err != nil {
		t.Error(err)
	}
	x.Must(f.Close(x.T))
}

// discard is a Sink that takes everything and keeps nothing.
type discard struct{ bytes uint64 }

func (*discard) Enter(*rescue.Object) error { return nil }
func (*discard) Leave(*rescue.Object) error { return nil }
func (*discard) Has(*rescue.Object) bool    { return false }
func (*discard) Link(_, _ string) error     { return nil }
func (d *discard) Put(o *rescue.Object) error {
	if o.Data == nil {
		return nil
	}
	return o.Data(func(_ uint64, p []byte) error {
		d.bytes += uint64(len(p))
		return nil
	})
}

// TestRandomDamage: bytes of tree blocks are changed under right checksums, or under wrong ones. No
// copy panics or has no end.
func TestRandomDamage(t *testing.T) {
	const seed = 11
	x := sample(t)
	base := x.Dev.(*blockdev.Memory).Snapshot()
	rng := rand.New(rand.NewPCG(seed, 1))
	blocks := newVictim(t, x.T, base).blocks
	for round := range 150 {
		dev := base.Snapshot()
		v := newVictim(t, x.T, dev)
		for range 1 + rng.IntN(4) {
			b := blocks[rng.IntN(len(blocks))]
			n := format.Node(v.read(int(v.im.Super().NodeSize), b.Off))
			at := 80 + rng.IntN(600)
			if rng.IntN(3) == 0 {
				at = rng.IntN(len(n))
			}
			n[at] = byte(rng.IntN(256))
			if rng.IntN(4) > 0 {
				n.UpdateCsum(format.CsumCRC32C)
			}
			for _, c := range blocks {
				if c.Bytenr == b.Bytenr && c.Generation == b.Generation {
					v.write(n, c.Off)
				}
			}
		}
		im, err := rescue.Open(x.T, []blockdev.Device{dev}, rescue.Options{})
		if err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		d := &discard{}
		if _, err := im.Copy(d, rescue.CopyOptions{Snapshots: true}); err != nil || d.bytes > 200<<20 {
			t.Errorf("seed %d round %d: %d bytes, %v", seed, round, d.bytes, err)
		}
	}
}
