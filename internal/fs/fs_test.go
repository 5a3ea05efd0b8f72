package fs_test

import (
	"bytes"
	"testing"

	"btrlab/internal/testing/fstest"
)

// TestWriteReopenRead is the shortest way through everything: write, commit, check, open, read.
func TestWriteReopenRead(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/a")
	want := bytes.Repeat([]byte("btrlab! "), 10000)
	x.WriteAt(f, want, 0)
	x.Must(f.Close(x.T))
	if !bytes.Equal(x.ReadFile("/a"), want) {
		t.Error("content differs before the file system was closed")
	}
	x.Reopen()
	if !bytes.Equal(x.ReadFile("/a"), want) {
		t.Error("content differs after the file system was opened again")
	}
}
