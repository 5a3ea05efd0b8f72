package mkfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// fixed are options that leave nothing to chance.
func fixed() Options {
	id := func(c byte) (u format.UUID) {
		for i := range u {
			u[i] = c
		}
		return
	}
	return Options{Label: "fixed", FSID: id(1), DevUUID: id(2), ChunkTreeUUID: id(3), SubvolUUID: id(4), Now: time.Unix(1700000000, 5)}
}

func TestSameOptionsSameBytes(t *testing.T) {
	tk := sched.NewTask("test")
	const size = 128 << 20
	var images [2][]byte
	for i := range images {
		dev := blockdev.NewMemory(size)
		if err := Make(tk, dev, fixed()); err != nil {
			t.Fatal(err)
		}
		images[i] = make([]byte, size)
		if err := blockdev.Read(tk, dev, images[i], 0); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Fatal("two runs with the same options differ")
	}
}

// TestWipe: a copy of an old, larger file system's superblock must not survive, nor a signature
// that would make blkid see two file systems.
func TestWipe(t *testing.T) {
	tk := sched.NewTask("test")
	dev := blockdev.NewMemory(200 << 20)
	if err := Make(tk, dev, fixed()); err != nil {
		t.Fatal(err)
	}
	o := fixed()
	o.Size = 60 << 20 // the copy at 64 MiB is outside now
	var exists *ExistsError
	if err := Make(tk, dev, o); !errors.As(err, &exists) || exists.Found != "a btrfs" {
		t.Fatalf("second mkfs without force: have %v", err)
	}
	end := []byte("end of device signature")
	if err := blockdev.Write(tk, dev, end, dev.Size()-int64(len(end))); err != nil {
		t.Fatal(err)
	}
	o.Force = true
	if err := Make(tk, dev, o); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, format.SuperSize)
	if err := blockdev.Read(tk, dev, p, int64(format.SuperMirror(1))); err != nil {
		t.Fatal(err)
	}
	if !isZero(p) {
		t.Error("the old superblock copy at 64 MiB survived")
	}
	p = p[:len(end)]
	if err := blockdev.Read(tk, dev, p, dev.Size()-int64(len(end))); err != nil {
		t.Fatal(err)
	}
	if !isZero(p) {
		t.Error("the end of the device was not wiped")
	}
}

func TestRefuses(t *testing.T) {
	tk := sched.NewTask("test")
	for _, c := range []struct {
		size int64
		o    Options
		want string
	}{
		{MinSize - 1, Options{}, "too small"},
		{MinSize, Options{Size: MinSize + 4096}, "bad size"},
		{MinSize, Options{MetadataProfile: "raid1"}, "bad metadata profile"},
		{MinSize, Options{NodeSize: 2048}, "node size 2048"},
		{MinSize, Options{NodeSize: 12288}, "node size 12288"},
		{MinSize, Options{NodeSize: 128 << 10}, "node size 131072"},
		{MinSize, Options{BlockGroupTree: true, Holes: true}, "block-group-tree without no-holes"},
		{MinSize, Options{Label: "a\nb"}, "bad label"},
		{MinSize, Options{Label: strings.Repeat("x", 256)}, "bad label"},
	} {
		if err := Make(tk, blockdev.NewMemory(c.size), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("size %d %+v: have %v want %q", c.size, c.o, err, c.want)
		}
	}
	dev := blockdev.NewMemory(MinSize)
	if err := blockdev.Write(tk, dev, []byte("\x53\xef"), 1080); err != nil {
		t.Fatal(err)
	}
	if err := Make(tk, dev, Options{}); err == nil || !strings.Contains(err.Error(), "ext4") {
		t.Errorf("over an ext4: have %v", err)
	}
}

// dying fails every write and flush from the n-th on, as a device that is pulled out.
type dying struct {
	blockdev.Device
	left int
}

func (d *dying) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op != blockdev.OpRead {
		if d.left--; d.left < 0 {
			b.Err = errors.New("device is gone")
			b.EndIO(t, b)
			return
		}
	}
	d.Device.Submit(t, b)
}

// TestInterrupted: mkfs over an old file system that dies at any step leaves the old one, none, or
// the whole new one.
func TestInterrupted(t *testing.T) {
	tk := sched.NewTask("test")
	old := blockdev.NewMemory(MinSize + 64<<20)
	if err := Make(tk, old, fixed()); err != nil {
		t.Fatal(err)
	}
	o := fixed()
	o.Label, o.Force, o.MetadataProfile = "new", true, "single"
	seen := map[string]int{}
	for n := 0; ; n++ {
		mem := old.Snapshot()
		d := &dying{mem, n}
		err := Make(tk, d, o)
		super := make([]byte, format.SuperSize)
		if err := blockdev.Read(tk, mem, super, format.SuperOffset); err != nil {
			t.Fatal(err)
		}
		state := "none"
		if format.CheckSuper(super, mem.Size()) == nil {
			var s format.Super
			s.Decode(super)
			state = s.Label
		} else if !isZero(super) {
			t.Errorf("after %d writes: a superblock that is neither whole nor gone", n)
		}
		seen[state]++
		if state != "none" {
			r, cerr := check.Check(tk, mem, check.Options{})
			if cerr != nil || !r.Clean {
				t.Errorf("after %d writes: the %s file system is not clean: %v %v", n, state, cerr, r.Findings)
			}
		}
		if err == nil {
			if d.left < 0 {
				t.Errorf("after %d writes: a failed write was not reported", n)
			}
			break
		}
	}
	if seen["fixed"] == 0 || seen["none"] == 0 || seen["new"] == 0 {
		t.Errorf("not every state was seen: %v", seen)
	}
}

// TestClean: the checker, which shares nothing with this package, agrees for every size and
// profile.
func TestClean(t *testing.T) {
	tk := sched.NewTask("test")
	for _, size := range []int64{MinSize, dupThreshold - 4096, dupThreshold, 1<<30 + 4096, 51 << 30, 300 << 30} {
		for _, profile := range []string{"dup", "single"} {
			for _, groups := range []bool{false, true} {
				dev := blockdev.NewMemory(size)
				o := fixed()
				o.MetadataProfile, o.BlockGroupTree = profile, groups
				if err := Make(tk, dev, o); err != nil {
					t.Fatal(err)
				}
				if r, err := check.Check(tk, dev, check.Options{}); err != nil || !r.Clean {
					t.Errorf("%d %s, a tree of block groups %v: %v %v", size, profile, groups, err, r.Findings)
				}
			}
		}
	}
}

// TestFeatures: names turn features on, a ^ turns them off, and what is not made is refused.
func TestFeatures(t *testing.T) {
	for _, c := range []struct {
		names, want string
		groups      bool
	}{
		{"", "", false}, {"block-group-tree", "", true}, {"bgt", "", true}, {"no-holes,bgt,fst", "", true}, {"bgt,^block-group-tree", "", false},
		{"^skinny-metadata", "", false}, {"^no-holes", "", false}, {"^extref", "images without extref are not made here", false}, {"zoned", "want one of: block-group-tree", false},
	} {
		var o Options
		err := o.SetFeatures(strings.FieldsFunc(c.names, func(r rune) bool { return r == ',' }))
		if c.want == "" && (err != nil || o.BlockGroupTree != c.groups) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: a tree of block groups %v, %v; want %v, %q", c.names, o.BlockGroupTree, err, c.groups, c.want)
		}
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func makeFile(t *testing.T, size int64, o Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	dev, err := blockdev.Create(path, size)
	if err != nil {
		t.Fatal(err)
	}
	if err := Make(sched.NewTask("test"), dev, o); err != nil {
		t.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBtrfsCheck: btrfs-progs finds every size and profile clean.
func TestBtrfsCheck(t *testing.T) {
	need.All(t, "btrfs")
	for _, c := range []struct {
		size    int64
		profile string
	}{
		{MinSize, "dup"}, {MinSize, "single"}, {dupThreshold - 4096, "dup"}, {dupThreshold, "dup"}, {256<<20 + 12345, "single"},
		{1 << 30, "dup"}, {20 << 30, "dup"}, {300 << 30, "dup"}, {300 << 30, "single"},
	} {
		t.Run(fmt.Sprintf("%d-%s", c.size, c.profile), func(t *testing.T) {
			o := fixed()
			o.MetadataProfile = c.profile
			path := makeFile(t, c.size, o)
			out := run(t, "btrfs", "check", "--check-data-csum", path)
			if !strings.Contains(out, "no error found") {
				t.Errorf("btrfs check:\n%s", out)
			}
			for _, bad := range []string{"mismatch", "ERROR", "WARNING", "There is no free space entry"} {
				if strings.Contains(out, bad) {
					t.Errorf("btrfs check says %q:\n%s", bad, out)
				}
			}
			super := run(t, "btrfs", "inspect-internal", "dump-super", "-a", path)
			if n, want := strings.Count(super, "[match]"), 3; n < want {
				t.Errorf("dump-super:\n%s", super)
			}
			st, err := os.Stat(path)
			if err != nil || st.Size() != c.size {
				t.Errorf("image is %d bytes want %d (%v)", st.Size(), c.size, err)
			}
		})
	}
}

// TestLinuxMounts: a mount alone is a weak witness, so Linux writes, scrubs, unmounts, and btrfs
// check judges again.
func TestLinuxMounts(t *testing.T) {
	need.All(t, need.Root, "btrfs", "mount", "umount")
	for _, profile := range []string{"dup", "single"} {
		t.Run(profile, func(t *testing.T) {
			o := fixed()
			o.MetadataProfile, o.Label = profile, "linux-"+profile
			// Linux refuses a second mount of the same UUID: leave it to chance.
			o.FSID, o.DevUUID = format.UUID{}, format.UUID{}
			path := makeFile(t, 300<<20, o)
			dir := t.TempDir()
			run(t, "mount", "-o", "loop", path, dir)
			mounted := true
			defer func() {
				if mounted {
					exec.Command("umount", dir).Run()
				}
			}()
			data := bytes.Repeat([]byte("btrlab "), 300000)
			for i := range 200 {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("small-%d", i)), data[:100*i], 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "big"), bytes.Repeat(data, 20), 0o644); err != nil {
				t.Fatal(err)
			}
			run(t, "sync", "-f", dir)
			if out := run(t, "btrfs", "scrub", "start", "-B", dir); !strings.Contains(out, "no errors found") {
				t.Errorf("scrub:\n%s", out)
			}
			if out := run(t, "btrfs", "filesystem", "label", dir); strings.TrimSpace(out) != o.Label {
				t.Errorf("label: have %q want %q", out, o.Label)
			}
			run(t, "umount", dir)
			mounted = false
			if out := run(t, "btrfs", "check", "--check-data-csum", path); !strings.Contains(out, "no error found") {
				t.Errorf("btrfs check after Linux wrote:\n%s", out)
			}
		})
	}
}

// huge is a device that says that it has 6 EiB.
type huge struct{ blockdev.Device }

func (huge) Size() int64 { return 6 << 60 }

// Devices whose sizes do not fit into the superblock together are refused before anything is
// written.
func TestTooLargeTogether(t *testing.T) {
	task := sched.NewTask("test")
	d := huge{blockdev.NewMemory(1 << 20)}
	err := Make(task, d, Options{Devices: []blockdev.Device{d, d}})
	if err == nil || !strings.Contains(err.Error(), "too large with the devices before it") {
		t.Errorf("three devices of 6 EiB: %v", err)
	}
}
