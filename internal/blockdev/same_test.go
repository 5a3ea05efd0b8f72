package blockdev

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSame: a file by other names, and one that is another.
func TestSame(t *testing.T) {
	dir := t.TempDir()
	a, b, hard, soft := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "hard"), filepath.Join(dir, "soft")
	for _, err := range []error{os.WriteFile(a, []byte("a"), 0o600), os.WriteFile(b, []byte("a"), 0o600), os.Link(a, hard), os.Symlink(a, soft)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		x, y string
		want bool
	}{{a, a, true}, {a, hard, true}, {soft, a, true}, {a, b, false}, {a, filepath.Join(dir, "none"), false}, {filepath.Join(dir, "none"), filepath.Join(dir, "none"), false}} {
		if have := Same(c.x, c.y); have != c.want {
			t.Errorf("%s and %s: %t", c.x, c.y, have)
		}
	}
}
