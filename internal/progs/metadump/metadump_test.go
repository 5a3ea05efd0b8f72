package metadump_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/metadump"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

var task = sched.NewTask("test")

// secret is in the names, in the data and in the attributes of the samples.
const secret = "Geheimnis"

// sample is a file system of a profile with small files, of which some are inline, links,
// attributes and a subvolume.
func sample(t *testing.T, profile string, devices int) []blockdev.Device {
	t.Helper()
	x := fstest.New(t, fstest.Devices(devices), fstest.Size(128<<20), fstest.NoCheck(), fstest.MkfsOptions(func(o *mkfs.Options) {
		o.DataProfile, o.MetadataProfile = profile, profile
	}))
	if err := x.FS.Subvolume(x.T, "/sub-"+secret, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		f := x.Create(fmt.Sprintf("/sub-%s/%s-%d", secret, secret, i))
		x.WriteAt(f, bytes.Repeat([]byte(secret), 1+i%7*40), 0)
		f.Close(x.T)
	}
	if err := x.FS.Symlink(x.T, secret, "/ln"); err != nil {
		t.Fatal(err)
	}
	if err := x.FS.Setxattr(x.T, "/sub-"+secret, "user.x", []byte(secret+secret)); err != nil {
		t.Fatal(err)
	}
	x.Close()
	return append([]blockdev.Device{x.Dev}, x.More...)
}

func samples(t *testing.T) map[string][]blockdev.Device {
	t.Helper()
	return fstest.Samples(t, task, "../..", func(p *format.Profile, n int) []blockdev.Device { return sample(t, p.Name, n) })
}

// dumped is a dump of the devices.
func dumped(t *testing.T, devs []blockdev.Device, o metadump.CreateOptions) ([]byte, metadump.Created) {
	t.Helper()
	var b bytes.Buffer
	sum, err := metadump.Create(open(t, devs), &b, o)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), sum
}

func open(t *testing.T, devs []blockdev.Device) *image.Image {
	t.Helper()
	im, err := image.Open(task, devs[0], devs[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// restored restores a dump.
func restored(t *testing.T, b []byte, way metadump.Way) []blockdev.Device {
	t.Helper()
	devs, err := restore(b, way)
	if err != nil {
		t.Fatal(err)
	}
	return devs
}

func restore(b []byte, way metadump.Way) (devs []blockdev.Device, err error) {
	d, err := metadump.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	sizes, err := d.Sizes(way)
	if err != nil {
		return nil, err
	}
	for _, n := range sizes {
		devs = append(devs, blockdev.NewMemory(n))
	}
	return devs, d.Restore(task, way, devs, nil)
}

// clean wants the judge to find nothing, and to say that it has not judged data.
func clean(t *testing.T, devs []blockdev.Device) {
	t.Helper()
	r, err := check.Check(task, devs[0], check.Options{Devices: devs[1:]})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Clean || r.Stats.DataBytes != 0 || !strings.Contains(fmt.Sprint(r.Notes), "without file data") {
		t.Errorf("%d bytes of data, notes %v, findings %v", r.Stats.DataBytes, r.Notes, r.Findings)
	}
}

// TestRoundTrip: the metadata of each sample comes back, on one device and on as many as it had,
// compressed or not, with the blocks of the extent tree or of the trees.
func TestRoundTrip(t *testing.T) {
	for name, devs := range samples(t) {
		t.Run(name, func(t *testing.T) {
			im := open(t, devs)
			first, _ := dumped(t, devs, metadump.CreateOptions{})
			for _, o := range []metadump.CreateOptions{{}, {Walk: true}, {Level: 9}} {
				b, sum := dumped(t, devs, o)
				if sum.Left+sum.Headers > 0 || sum.Bytes != int64(len(b)) || len(b)%1024 != 0 {
					t.Errorf("%+v: %+v for %d bytes", o, sum, len(b))
				}
				if o.Level > 0 && len(b) > len(first)/2 {
					t.Errorf("%d bytes compressed, %d without", len(b), len(first))
				}
				clean(t, restored(t, b, metadump.OneDevice))
				if len(devs) == 1 {
					same(t, im, restored(t, b, metadump.OneDevice))
					continue
				}
				to := restored(t, b, metadump.SameDevices)
				clean(t, to)
				same(t, im, to)
			}
			if bytes.Contains(first, []byte(secret+secret+secret)) {
				t.Error("file data is in the dump")
			}
		})
	}
}

// same wants each tree block of im to be in what is restored, but for the contents of inline
// extents and checksums.
func same(t *testing.T, im *image.Image, devs []blockdev.Device) {
	t.Helper()
	to := open(t, devs)
	refs := []image.Ref{im.RootTree(), im.ChunkTree()}
	list, err := im.Roots()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		refs = append(refs, r.Ref())
	}
	if im.SB.LogRoot != 0 {
		refs = append(refs, im.LogTree())
	}
	items := 0
	for _, r := range refs {
		type item struct {
			k format.Key
			b []byte
		}
		var want []item
		if err := im.Each(r, func(k format.Key, b []byte) { want = append(want, item{k, bytes.Clone(b)}) }); err != nil {
			t.Fatal(err)
		}
		n := 0
		err := to.Each(r, func(k format.Key, b []byte) {
			if n >= len(want) || want[n].k != k || len(want[n].b) != len(b) {
				t.Fatalf("tree %d, item %d is %v", int64(r.Tree), n, k)
			}
			w := want[n].b
			n++
			switch {
			case k.Type == format.EXTENT_CSUM_KEY:
				clear(w)
			case k.Type == format.EXTENT_DATA_KEY && format.FileExtentView(b).Type() == format.FileExtentTypeInline:
				clear(format.FileExtentView(w).Inline())
			}
			if !bytes.Equal(w, b) {
				t.Errorf("tree %d, item %v is another one", int64(r.Tree), k)
			}
		})
		if err != nil || n != len(want) {
			t.Errorf("tree %d: %v, have %d items want %d", int64(r.Tree), err, n, len(want))
		}
		items += n
		everyCopy(t, to, r)
	}
	if items < 20 {
		t.Errorf("have %d items, want those of a file system", items)
	}
}

// everyCopy wants the copies of the blocks of a tree, and what parity makes of them, to be the
// same.
func everyCopy(t *testing.T, im *image.Image, r image.Ref) {
	t.Helper()
	image.Nodes(r, im.Checked, func(n format.Node) {
		mirrors, rebuilds := im.Copies(n.Bytenr())
		for i := range mirrors + rebuilds {
			if b, err := im.Block(n.Bytenr(), i); err != nil || !bytes.Equal(b, n) {
				t.Errorf("block %d: copy %d of %d and %d is another one: %v", n.Bytenr(), i, mirrors, rebuilds, err)
			}
		}
	}, func(err error) { t.Error(err) })
}

// TestNames: with names of the same hash the restored image is clean and has none of the old ones;
// with random ones it has none of them either.
func TestNames(t *testing.T) {
	devs := sample(t, "single", 1)
	for _, names := range []metadump.Names{metadump.RandomNames, metadump.CollidingNames} {
		b, sum := dumped(t, devs, metadump.CreateOptions{Names: names, Seed: [32]byte{1}})
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("names %d: an old name is in the dump", names)
		}
		other, _ := dumped(t, devs, metadump.CreateOptions{Names: names, Seed: [32]byte{2}})
		if bytes.Equal(b, other) {
			t.Errorf("names %d: the same names for another seed", names)
		}
		if names == metadump.CollidingNames {
			if sum.Kept != 1 || sum.Unalike != 0 { // ln
				t.Errorf("have %+v", sum)
			}
			clean(t, restored(t, b, metadump.OneDevice))
		}
	}
	b, _ := dumped(t, devs, metadump.CreateOptions{})
	if !bytes.Contains(b, []byte(secret)) {
		t.Error("without sanitizing, the old names are not in the dump")
	}
}

// TestDamaged: a block that is damaged on the device is left out, and the others are in the dump.
func TestDamaged(t *testing.T) {
	devs := sample(t, "single", 1)
	im := open(t, devs)
	list, err := im.Roots()
	if err != nil {
		t.Fatal(err)
	}
	var last image.Ref
	for _, r := range list {
		if r.Key.Objectid >= format.FIRST_FREE_OBJECTID && r.Key.Objectid < format.LAST_FREE_OBJECTID {
			last = r.Ref()
		}
	}
	places, _ := im.Chunks.At(last.Bytenr).Places(last.Bytenr)
	if err := blockdev.Write(task, devs[0], []byte("damage"), int64(places[0].Off)+200); err != nil {
		t.Fatal(err)
	}
	for _, walk := range []bool{false, true} {
		var notes []string
		_, sum := dumped(t, devs, metadump.CreateOptions{Walk: walk, Note: func(text string) { notes = append(notes, text) }})
		if sum.Left != 1 || len(notes) != 1 || !strings.Contains(notes[0], "bad csum") || sum.Blocks < 5 {
			t.Errorf("walk %v: have %+v and %q", walk, sum, notes)
		}
	}
}

// flips is how many changed dumps TestHostile tries; a campaign by hand had 20,000.
const flips = 60

// TestHostile: a dump that is cut short or changed anywhere is an error or an image, never a panic,
// and takes no more memory than what it has.
func TestHostile(t *testing.T) {
	for _, c := range []struct {
		devs  []blockdev.Device
		level int
	}{{sample(t, "single", 1), 0}, {sample(t, "raid1", 2), 6}} {
		whole, _ := dumped(t, c.devs, metadump.CreateOptions{Level: c.level})
		for _, n := range []int{0, 1, 20, 1023, 1024, 1025, 5000, len(whole) - 1024, len(whole) - 1} {
			if _, err := restore(whole[:n], metadump.OneDevice); err == nil && n < len(whole)-1024 {
				t.Errorf("cut to %d bytes of %d: no error", n, len(whole))
			}
		}
		r := rand.New(rand.NewPCG(1, uint64(c.level)))
		for range flips {
			b := bytes.Clone(whole)
			for range 1 + r.IntN(3) {
				at := r.IntN(len(b))
				if r.IntN(3) == 0 {
					at = r.IntN(1024 + 4096) // header and superblock
				}
				b[at] ^= 1 << r.IntN(8)
			}
			for _, way := range []metadump.Way{metadump.OneDevice, metadump.SameDevices, metadump.Logical} {
				sparse(t, b, way)
			}
		}
	}
}

// sparse restores a dump that may be damaged, if its devices have a size that a test can have.
func sparse(t *testing.T, b []byte, way metadump.Way) {
	t.Helper()
	d, err := metadump.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		oneLine(t, err)
		return
	}
	sizes, err := d.Sizes(way)
	if err != nil {
		oneLine(t, err)
		return
	}
	var devs []blockdev.Device
	for _, n := range sizes {
		if n > 1<<30 || n <= 0 {
			return
		}
		devs = append(devs, blockdev.NewMemory(n))
	}
	if err := d.Restore(task, way, devs, nil); err != nil {
		oneLine(t, err)
	}
}

func oneLine(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); strings.Contains(text, "\n") || len(text) > 300 {
		t.Errorf("not one line: %q", text)
	}
}

// TestHeaders: what headers can say wrong, each with its sentence.
func TestHeaders(t *testing.T) {
	whole, _ := dumped(t, sample(t, "single", 1), metadump.CreateOptions{})
	for _, c := range []struct {
		want string
		edit func(b []byte)
	}{
		{"is no dump", func(b []byte) { b[0]++ }},
		{"with file data", func(b []byte) { copy(b, "_DUmP_v1") }},
		{"bad bytenr", func(b []byte) { b[8] = 1 }},
		{"bad number of items", func(b []byte) { b[16] = 84 }},
		{"bad compression", func(b []byte) { b[20] = 2 }},
		{"zlib", func(b []byte) { b[20] = 1 }},
		{"cut short or damaged", func(b []byte) { binary.LittleEndian.PutUint32(b[29:], 1<<31) }},
		{"cut short or damaged", func(b []byte) { binary.LittleEndian.PutUint32(b[29:], 0) }},
		{"no superblock", func(b []byte) { b[22]++ }},
		{"bad nodesize", func(b []byte) { b[1024+0x94]++ }},
		{"bad csum type", func(b []byte) { b[1024+0xc4] = 99 }},
		{"bad magic", func(b []byte) { b[1024+0x40]++ }},
	} {
		b := bytes.Clone(whole)
		c.edit(b)
		if _, err := restore(b, metadump.OneDevice); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("have %v, want %q", err, c.want)
		}
	}
}
