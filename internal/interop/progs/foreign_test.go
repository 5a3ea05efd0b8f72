package progs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/cli"
	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// made is an image of mkfs.btrfs with the given options. It holds the files of a small tree, which
// is returned by path.
func made(t *testing.T, options ...string) (img string, files map[string][]byte) {
	t.Helper()
	if _, err := exec.LookPath("mkfs.btrfs"); err != nil {
		if need.Forced() {
			t.Fatal(err)
		}
		t.Skip("NOT TESTED AGAINST LINUX: no mkfs.btrfs")
	}
	dir := t.TempDir()
	files = map[string][]byte{"small": []byte("hello\n"), "d/e/large": bytes.Repeat([]byte("0123456789abcdef\n"), 20000), "d/empty": nil}
	tree := filepath.Join(dir, "tree")
	for name, p := range files {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("small", filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	img = filepath.Join(dir, "image")
	interop.Sh(t, "truncate", "-s", "160M", img)
	interop.Sh(t, "mkfs.btrfs", append(append([]string{"-q", "--rootdir", tree}, options...), img)...)
	return img, files
}

// readable wants every verb that reads to take the image as it is.
func readable(t *testing.T, img string, files map[string][]byte) {
	t.Helper()
	interop.Btrlab(t, "info", img)
	if out := interop.Btrlab(t, "ls", img+":/d"); !strings.Contains(out, "e") || !strings.Contains(out, "empty") {
		t.Errorf("ls of /d, have:\n%s", out)
	}
	for name, p := range files {
		if out := interop.Btrlab(t, "cat", img+":/"+name); out != string(p) {
			t.Errorf("cat of /%s, have %d bytes want %d of another content", name, len(out), len(p))
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	interop.Btrlab(t, "get", "-r", img+":/", out)
	// mkfs.btrfs may store a NUL with it
	if to, err := os.Readlink(filepath.Join(out, "link")); err != nil || to != "small" {
		t.Errorf("the link leads to %q, %v, want small", to, err)
	}
}

// refused wants a verb that writes to fail with one line that has the text.
func refused(t *testing.T, img, want string) {
	t.Helper()
	var out, errw bytes.Buffer
	code := cli.Main([]string{"mkdir", img + ":/new"}, strings.NewReader(""), &out, &errw)
	if code != 1 || !strings.Contains(errw.String(), want) || strings.Count(errw.String(), "\n") != 1 {
		t.Errorf("mkdir, have exit code %d and %q want 1 and one line with %q", code, errw.String(), want)
	}
}

// TestMixedGroups: an image whose block groups hold data and metadata is read and written; one of
// ours is judged as well.
func TestMixedGroups(t *testing.T) {
	for _, options := range [][]string{{"--mixed"}, {"--mixed", "-d", "dup", "-m", "dup"}} {
		img, files := made(t, options...)
		interop.Judged(t, img)
		readable(t, img, files)
		writeNew(t, img, files)
		interop.Judged(t, img)
		readable(t, img, files)
	}
	img, files := filepath.Join(t.TempDir(), "mixed.img"), map[string][]byte{}
	interop.Btrlab(t, "mkfs", "--mixed", "--size", "128M", img)
	writeNew(t, img, files)
	interop.Judged(t, img)
	if out := interop.Btrlab(t, "cat", img+":/new/x"); out != string(files["new/x"]) {
		t.Errorf("have %d bytes, want those that were put", len(out))
	}
}

// writeNew puts a file of 100,000 bytes into a new directory of the image, and notes it in files.
func writeNew(t *testing.T, img string, files map[string][]byte) {
	t.Helper()
	files["new/x"] = bytes.Repeat([]byte("x"), 100000)
	host := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(host, files["new/x"], 0o644); err != nil {
		t.Fatal(err)
	}
	interop.Btrlab(t, "mkdir", img+":/new")
	interop.Btrlab(t, "put", host, img+":/new/x")
}

// TestMetadataUUID: an image whose identifier btrfstune changed in the superblock only is read and
// written.
func TestMetadataUUID(t *testing.T) {
	img, files := made(t)
	if _, err := exec.LookPath("btrfstune"); err != nil {
		t.Skip("NOT TESTED AGAINST LINUX: no btrfstune")
	}
	interop.Sh(t, "btrfstune", "-m", img)
	interop.Judged(t, img)
	readable(t, img, files)
	writeNew(t, img, files)
	interop.Judged(t, img)
	readable(t, img, files)
}

// TestRestoredDump: an image that btrfs-image restored has metadata only. It can be checked and
// listed.
func TestRestoredDump(t *testing.T) {
	img, _ := made(t)
	if _, err := exec.LookPath("btrfs-image"); err != nil {
		t.Skip("NOT TESTED AGAINST LINUX: no btrfs-image")
	}
	dump, restored := img+".dump", img+".restored"
	interop.Sh(t, "btrfs-image", img, dump)
	interop.Sh(t, "btrfs-image", "-r", dump, restored)
	interop.Sh(t, "btrfs", "check", restored)
	if out := interop.Btrlab(t, "check", restored); !strings.Contains(out, "without file data") {
		t.Errorf("check, have:\n%s", out)
	}
	if out := interop.Btrlab(t, "ls", restored+":/d"); !strings.Contains(out, "empty") {
		t.Errorf("ls, have:\n%s", out)
	}
}
