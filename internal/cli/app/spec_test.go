package app

import (
	"os"
	"testing"
)

func TestSplitSpec(t *testing.T) {
	dir := t.TempDir()
	odd := dir + "/a:/b.img"
	if err := os.MkdirAll(dir+"/a:", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(odd, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		spec, image, path string
		ok                bool
	}{
		{"x.img:/a/b", "x.img", "/a/b", true},
		{"x.img:/a:/b", "x.img", "/a:/b", true},
		{"x.img:/", "x.img", "/", true},
		{"x.img:/a//b/../c", "x.img", "/a/c", true},
		{"x.img:/../..", "x.img", "/", true},
		{"x.img", "x.img", "/", false},
		{"x.img:a", "x.img:a", "/", false},
		{":/a", ":/a", "/", false},
		{odd + ":/c", odd, "/c", true},
	} {
		image, path, ok := splitSpec(tt.spec)
		if image != tt.image || path != tt.path || ok != tt.ok {
			t.Errorf("splitSpec(%q) = %q, %q, %v, want %q, %q, %v", tt.spec, image, path, ok, tt.image, tt.path, tt.ok)
		}
	}
}
