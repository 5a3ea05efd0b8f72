package transfer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"btrlab/internal/blockdev"
)

// TestShare: what a sparseWriter gets by sharing is not written, what lies between and after is,
// and a shared block that reaches over the end is no part of the file.
func TestShare(t *testing.T) {
	data := make([]byte, 40*hostBlock+100)
	for i := range data {
		data[i] = byte(i%250 + 1)
	}
	clear(data[10*hostBlock : 12*hostBlock])
	for _, most := range []int{0, 1, 5, 100} { // blocks that are shared of each run
		path := filepath.Join(t.TempDir(), "f")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		shared := 0
		w := &sparseWriter{f: f, share: func(p []byte, off int64) int {
			n := min(most*hostBlock, (len(p)+hostBlock-1)/hostBlock*hostBlock)
			block := append(bytes.Clone(data[off:min(int(off)+n, len(data))]), "over the end"...)
			if _, err := f.WriteAt(block[:min(n, len(block))], off); err != nil {
				t.Fatal(err)
			}
			shared += n
			return n
		}}
		if n, err := w.Write(data); n != len(data) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		if w.end != int64(len(data)) {
			if w.end < int64(len(data)) {
				t.Errorf("%d blocks shared: the end is %d", most, w.end)
			}
			if err := f.Truncate(int64(len(data))); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
		have, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(have, data) || shared == 0 && most > 0 {
			t.Errorf("%d blocks shared: %d bytes, %v, %d by sharing", most, len(have), err, shared)
		}
	}
}

// TestCloneRefused: a device that is no file shares nothing.
func TestCloneRefused(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := blockdev.Clone(f, 0, blockdev.NewMemory(1<<20), 0, 4096); err != blockdev.ErrNoClone {
		t.Errorf("have %v", err)
	}
}
