package judges

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"btrlab/internal/study/sandbox"
)

func root(t *testing.T) string {
	t.Helper()
	r, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lab is the lab with a number.
func lab(t *testing.T, n int) Lab {
	t.Helper()
	for _, l := range All {
		if l.About().N == n {
			return l
		}
	}
	t.Fatalf("no lab %d", n)
	return nil
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}
