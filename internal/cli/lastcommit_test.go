package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
)

// TestLastCommitFails: what a verb has written is in the image once its commit is. When that fails,
// or the write before it, the verb says so, also when it was interrupted on its way; and the image
// is what it was.
func TestLastCommitFails(t *testing.T) {
	dir := t.TempDir()
	img, file := filepath.Join(dir, "a.img"), filepath.Join(dir, "file")
	if err := os.WriteFile(file, make([]byte, 100_000), 0o644); err != nil {
		t.Fatal(err)
	}
	verb(t, 0, "mkfs", "-q", "--size", "128M", img)
	verb(t, 0, "put", file, img+":/one")
	for _, args := range [][]string{
		{"put", file, img + ":/two", "--fault", "eio:flush:1"},
		{"write", "--data", "text", img + ":/one", "--fault", "eio:flush:1"},
		{"write", "--data", "text", "--offset", "9223372036854775807", img + ":/one"},
		{"truncate", "--size", "1k", img + ":/one", "--fault", "eio:flush:1"},
		{"rm", img + ":/one", "--fault", "eio:flush:1"},
		{"mv", img + ":/one", "/two", "--fault", "eio:flush:1"},
	} {
		verb(t, app.ExitFailed, args...)
	}

	// The interrupt comes when a part of the file is in.
	a := newCmdline(strings.NewReader(""), io.Discard, io.Discard)
	a.In = app.ReadFunc(func(p []byte) (int, error) {
		a.Stop.Store(true)
		return len(p), nil
	})
	err := a.run([]string{"put", "-", img + ":/two", "--fault", "eio:flush:1"})
	if !errors.Is(err, errno.EIO) {
		t.Errorf("interrupted, and the commit fails: have %v want EIO", err)
	}
	if have := verb(t, 0, "ls", img); have != "one\n" {
		t.Errorf("ls shows %q, want one alone", have)
	}
	if have := verb(t, 0, "cat", img+":/one"); have != strings.Repeat("\x00", 100_000) {
		t.Errorf("the file has %d bytes and is not what was put", len(have))
	}
	verb(t, 0, "check", img)
}
