package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var lockedFunc = regexp.MustCompile(`(?ms)^func [^\n]*?(\w+Locked)\([^\n]*\{$.*?^\}$`)

// A function of the write path that is named Locked relies on a lock, and asserts it: its callers
// are checked in every test.
func TestLockedFunctionsAssert(t *testing.T) {
	seen := 0
	for _, room := range []string{"blockdev", "meta", "data", "iopath", "fs", "lock"} {
		err := filepath.WalkDir(filepath.Join("..", room), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range lockedFunc.FindAllStringSubmatch(string(src), -1) {
				if strings.EqualFold(m[1], "AssertLocked") {
					continue
				}
				if seen++; !strings.Contains(m[0], ".Assert") {
					t.Errorf("%s: %s asserts no lock", path, m[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 10 {
		t.Errorf("%d functions found, want those of the write path", seen)
	}
}
