package dump_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/dump"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/damaged"
	"btrlab/internal/testing/need"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func id(c byte) (u format.UUID) {
	for i := range u {
		u[i] = c
	}
	return
}

func fresh(t *testing.T, dev blockdev.Device) {
	t.Helper()
	o := mkfs.Options{Label: "dump me", FSID: id(1), DevUUID: id(2), ChunkTreeUUID: id(3), SubvolUUID: id(4), Now: time.Unix(1700000000, 0)}
	if err := mkfs.Make(sched.NewTask("test"), dev, o); err != nil {
		t.Fatal(err)
	}
}

// TestGolden holds every text of a fresh file system; UPDATE=1 rewrites it.
func TestGolden(t *testing.T) {
	time.Local = time.UTC
	tk := sched.NewTask("test")
	dev := blockdev.NewMemory(128 << 20)
	fresh(t, dev)
	var b strings.Builder
	section := func(name string, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	b.WriteString("# super\n")
	section("super", dump.Super(tk, &b, dev))
	b.WriteString("# chunks\n")
	section("chunks", dump.Chunks(tk, &b, dev))
	for _, name := range []string{"root", "chunk", "extent", "dev", "fs", "csum", "uuid", "free-space", "-9"} {
		b.WriteString("# tree " + name + "\n")
		section(name, dump.Tree(tk, &b, dev, name))
	}
	i, err := dump.ReadInfo(tk, dev)
	section("info", err)
	b.WriteString("# info\n")
	dump.PrintInfo(&b, i)
	golden := filepath.Join("testdata", "fresh.txt")
	if os.Getenv("UPDATE") == "1" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); d != "" {
		t.Errorf("dump of a fresh file system (-want +have), UPDATE=1 rewrites:\n%s", d)
	}
}

// TestDamaged: a dump of a damaged image shows what is there, names the bad block, and fails.
func TestDamaged(t *testing.T) {
	tk := sched.NewTask("test")
	dev := blockdev.NewMemory(128 << 20)
	fresh(t, dev)
	var b strings.Builder
	if err := dump.Tree(tk, &b, dev, "no such"); err == nil || !strings.Contains(err.Error(), "no tree") {
		t.Errorf("an unknown name: %v", err)
	}
	if err := dump.Tree(tk, &b, dev, "300"); err == nil || !strings.Contains(err.Error(), "no tree") {
		t.Errorf("a tree that is not there: %v", err)
	}
	r, err := image.Open(tk, dev)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Chunks[1].Stripes { // the root tree's block is the first
		if err := blockdev.Write(tk, dev, []byte("rot"), int64(s.Off)+3000); err != nil {
			t.Fatal(err)
		}
	}
	b.Reset()
	if err := dump.Tree(tk, &b, dev, "root"); err == nil || !strings.Contains(err.Error(), "bad csum") {
		t.Errorf("a rotten block: %v", err)
	}
	if !strings.Contains(b.String(), "error: root=1 block=") {
		t.Errorf("a rotten block is not shown:\n%s", b.String())
	}
	if err := blockdev.Write(tk, dev, make([]byte, 4096), format.SuperOffset); err != nil {
		t.Fatal(err)
	}
	if _, err := dump.ReadInfo(tk, dev); err == nil || !strings.Contains(err.Error(), "bad magic") {
		t.Errorf("info without superblock: %v", err)
	}
	b.Reset()
	if err := dump.Super(tk, &b, dev); err != nil || !strings.Contains(b.String(), "DON'T MATCH") {
		t.Errorf("super without superblock: %v\n%s", err, b.String())
	}
}

// TestDumpOfHalves: a block with one good copy is shown, whichever of the two it is; a block that a
// tree reaches twice is shown once, and the second way to it is an error.
func TestDumpOfHalves(t *testing.T) {
	tk := sched.NewTask("test")
	whole := blockdev.NewMemory(128 << 20)
	fresh(t, whole)
	r, err := image.Open(tk, whole)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := dump.Tree(tk, &want, whole, "root"); err != nil {
		t.Fatal(err)
	}
	for i, s := range r.Chunks[1].Stripes {
		dev := whole.Snapshot()
		if err := blockdev.Write(tk, dev, []byte("rot"), int64(s.Off)+3000); err != nil {
			t.Fatal(err)
		}
		var have strings.Builder
		if err := dump.Tree(tk, &have, dev, "root"); err != nil || have.String() != want.String() {
			t.Errorf("copy %d of the root tree is rotten: %v\n%s", i, err, cmp.Diff(want.String(), have.String()))
		}
	}

	// The fs tree gets a root with two pointers to its leaf.
	put := func(n format.Node) {
		n.UpdateCsum(format.CsumCRC32C)
		c := r.Chunks[1]
		for _, s := range c.Stripes {
			if err := blockdev.Write(tk, whole, n, int64(s.Off+n.Bytenr()-c.Start)); err != nil {
				t.Fatal(err)
			}
		}
	}
	roots, err := r.Roots()
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range roots {
		if root.Key.Objectid != format.FS_TREE_OBJECTID {
			continue
		}
		n := make(format.Node, r.SB.NodeSize)
		n.InitHeader(r.SB.FSID, id(3), r.Chunks[1].Start+30*uint64(r.SB.NodeSize), 1, format.FS_TREE_OBJECTID, 1)
		n.SetWritten(true)
		n.SetNritems(2)
		for i := range 2 {
			n.SetKey(i, format.Key{Objectid: 256 + uint64(i), Type: format.INODE_ITEM_KEY})
			n.SetBlockptr(i, root.Item.Bytenr)
			n.SetPtrGeneration(i, 1)
		}
		put(n)
		leaf, err := r.Checked(r.RootTree())
		if err != nil {
			t.Fatal(err)
		}
		slot, _ := leaf.Search(root.Key)
		root.Item.Bytenr, root.Item.Level = n.Bytenr(), 1
		root.Item.Encode(leaf.Item(slot))
		put(leaf)
	}
	var b strings.Builder
	if err := dump.Tree(tk, &b, whole, "fs"); err == nil || !strings.Contains(err.Error(), "reached a second time") {
		t.Errorf("a block with two pointers: %v\n%s", err, b.String())
	}
	if n := strings.Count(b.String(), "item 0 key (256 INODE_ITEM 0)"); n != 1 {
		t.Errorf("its leaf is shown %d times, want once:\n%s", n, b.String())
	}
}

// TestAgainstInspectInternal: every tree of a fresh file system reads as btrfs prints it.
func TestAgainstInspectInternal(t *testing.T) {
	need.All(t, "btrfs")
	time.Local = time.UTC
	path := os.Getenv("BTRLAB_DUMP_IMAGE") // any image of interest
	if path == "" {
		path = filepath.Join(t.TempDir(), "image")
		dev, err := blockdev.Create(path, 128<<20)
		if err != nil {
			t.Fatal(err)
		}
		fresh(t, dev)
		dev.Close()
	}
	against(t, path, "1", "2", "3", "4", "5", "7", "9", "10")
}

// TestQuotaAgainstInspectInternal: the same, of the tree of qgroups.
func TestQuotaAgainstInspectInternal(t *testing.T) {
	need.All(t, "btrfs")
	m := damaged.NewImage(t)
	m.AddQuota(format.QgroupStatusOn|format.QgroupStatusInconsistent, m.Super.Generation)
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, m.Read(0, int(m.Dev.Size())), 0o600); err != nil {
		t.Fatal(err)
	}
	against(t, path, "8")
}

// TestQuota: what a tree of qgroups says, without another judge.
func TestQuota(t *testing.T) {
	m := damaged.NewImage(t)
	m.AddQuota(format.QgroupStatusOn, m.Super.Generation)
	var b strings.Builder
	if err := dump.Tree(m.Task, &b, m.Dev, "quota"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"flags ON scan", "key (0 QGROUP_INFO 0/5)", "\t\treferenced ", "\t\tmax_referenced ", "QGROUP_RELATION 1/"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// against compares trees with what btrfs inspect-internal prints.
func against(t *testing.T, path string, trees ...string) {
	t.Helper()
	dev, err := blockdev.Open(path, blockdev.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	tk := sched.NewTask("test")
	for _, tree := range trees {
		cmd := exec.Command("btrfs", "inspect-internal", "dump-tree", "--dfs", "-t", tree, path)
		cmd.Env = append(os.Environ(), "TZ=UTC")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("dump-tree -t %s: %v", tree, err)
		}
		// Its first line is its version, and its last ones a summary.
		_, text, _ := strings.Cut(string(out), "\n")
		if i := strings.Index(text, "total bytes "); i >= 0 {
			text = text[:i]
		}
		var b strings.Builder
		if err := dump.Tree(tk, &b, dev, tree); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(text, "\n"), strings.Split(b.String(), "\n")); d != "" {
			t.Errorf("tree %s (-btrfs +have):\n%s", tree, d)
		}
	}
}
