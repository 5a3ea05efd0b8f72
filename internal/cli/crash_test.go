package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKnownBugs: the bugs of btrfs that CrashMonkey reproduces, generic tests of xfstests and three of
// its own, each as a workload. None of them loses anything here, neither by commits nor by logs.
func TestKnownBugs(t *testing.T) {
	scripts, err := filepath.Glob("../../testdata/crash/*.ops")
	if err != nil || len(scripts) != 18 {
		t.Fatalf("have %d scripts, want 18, %v", len(scripts), err)
	}
	image := filepath.Join(t.TempDir(), "a.img")
	run := func(args ...string) (string, int) {
		var out bytes.Buffer
		code := Main(args, strings.NewReader(""), &out, &out)
		return out.String(), code
	}
	if out, code := run("mkfs", "-q", "--size", "256M", image); code != 0 {
		t.Fatal(out)
	}
	for _, path := range scripts {
		for _, policy := range []string{"modern", "modern+FSYNC_LOG"} {
			if out, code := run("crash", "--script", path, "--states", "16", "--save", "", "--policy", policy, image); code != 0 {
				t.Errorf("%s under %s:\n%s", path, policy, out)
			}
		}
		// Each shows a loss when the order is wrong: the script does sync something.
		if out, code := run("crash", "--script", path, "--states", "16", "--save", "", "--wrong", "no-flush", image); code != 1 {
			t.Errorf("%s without flushes: exit code %d\n%s", path, code, out)
		}
	}
	if _, err := os.Stat("crash.img"); err == nil {
		t.Error("something was saved")
	}
}
