package transfer

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNeed: the holes of a file take nothing in the image, so the image has no room for them: a
// sparse file of terabytes does not make one that the host cannot have.
func TestNeed(t *testing.T) {
	need := func(size, data int64) int64 {
		t.Helper()
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Truncate(size); err != nil {
			t.Skipf("no file of %d bytes here: %v", size, err)
		}
		if _, err := f.WriteAt(make([]byte, data), size-data); err != nil {
			t.Fatal(err)
		}
		if start, _, err := nextData(f, 0, size); err != nil || start == 0 && data < size {
			t.Skipf("the file system does not tell its holes: %v", err)
		}
		s := NewScan(&watch{t: t})
		root, err := s.Tree(dir)
		if err != nil {
			t.Fatal(err)
		}
		return Need(root)
	}
	const data = 3 << 20
	full := need(data, data)
	if full < data || full > 300<<20 {
		t.Errorf("a file of %d bytes needs %d", data, full)
	}
	if sparse := need(2<<40, data); sparse < full || sparse > full+1<<20 {
		t.Errorf("the same data in a file of 2 TiB needs %d, want about %d", sparse, full)
	}
}
