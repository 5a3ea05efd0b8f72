package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/testing/need"
)

// TestKnownBugs: the bugs of btrfs that CrashMonkey reproduces, generic tests of xfstests and three
// of its own, each as a workload, and five more. None of them loses anything here, neither by
// commits nor by logs.
func TestKnownBugs(t *testing.T) {
	need.Long(t)
	scripts, err := filepath.Glob("../../testdata/crash/*.ops")
	if err != nil || len(scripts) != 23 {
		t.Fatalf("have %d scripts, want 23, %v", len(scripts), err)
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
		for _, policy := range []string{"modern!FSYNC_LOG", "modern"} {
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

// TestBugsComeBack: a wrong order of the log or of its replay is found, by the workload that came
// with the kernel's change where there was one. What a kernel had wrong together is switched on
// together. The last row is one half of such a pair, which the other half makes good.
func TestBugsComeBack(t *testing.T) {
	image := filepath.Join(t.TempDir(), "a.img")
	run := func(args ...string) (string, int) {
		var out bytes.Buffer
		code := Main(args, strings.NewReader(""), &out, &out)
		return out.String(), code
	}
	if out, code := run("mkfs", "-q", "--size", "256M", image); code != 0 {
		t.Fatal(out)
	}
	for _, c := range []struct{ script, wrong, loss string }{
		{"generic-056", "SUPER_FIRST", "LOST check: the image is damaged: tree.read: root=-6 "},
		{"generic-056", "NO_FLUSH", "LOST check: the image is damaged: tree.csum: root=-6 "},
		{"generic-056", "NO_SUMS", "LOST check: the image is damaged: log.csum: "},
		{"generic-056", "BEFORE_DATA", "LOST size: /foo has 0 bytes, want 4096 "},
		{"generic-056", "UNPINNED", "replay log tree at"},
		{"generic-039", "LOST_NAMES", "LOST names: inode 258 has 2 names, want 1"},
		{"generic-059", "PUNCH_UNMARKED", "LOST data: /foo at 24000 has 0x61, want 0x00"},
		{"generic-066", "KEEP_XATTRS", "LOST attribute: /foo has "},
		{"generic-106", "LOST_NAMES", "LOST names: inode 258 has 2 names, want 1"},
		{"generic-107", "LOST_NAMES", "LOST names: inode 257 has 3 names, want 2"},
		{"generic-336", "LOST_NAMES", "LOST names: inode 260 has 2 names, want 1"},
		{"generic-341", "TAKEN_NAMES", " has 0 names, want 1"}, // the directory, or a file below it
		{"generic-342", "TAKEN_NAMES", "LOST names: inode 257 has 0 names, want 1"},
		{"link-unlink", "TAKEN_NAMES NO_CONFLICTS", "file exists"},
		{"link-unlink", "TAKEN_NAMES KEEP_SIZE", "LOST check: the image is damaged after it was opened: "},
		{"inode-eexist", "OLD_NUMBERS", "LOST use: open /.after the crash: file exists"},
		{"xattr-loss", "CHANGED_XATTRS", "LOST attribute: /foo has no attributes, want "},
		{"missing-hole", "NO_HOLES", "LOST data: /foo at 16384 has 0x61, want 0x00"},
		{"link-unlink", "TAKEN_NAMES", "nothing that was promised is lost"},
	} {
		t.Run(c.script+" "+c.wrong, func(t *testing.T) {
			policy := "modern"
			for _, w := range strings.Fields(c.wrong) {
				policy += "+WRONG_LOG_" + w
			}
			out, code := run("crash", "--script", "../../testdata/crash/"+c.script+".ops", "--states", "16", "--save", "", "--policy", policy, image)
			if found := strings.Contains(c.loss, "nothing"); found != (code == 0) || !strings.Contains(out, c.loss) {
				t.Errorf("exit code %d, want %q in\n%s", code, c.loss, out)
			}
			if n := strings.Count(out, "  LOST ") + strings.Count(out, "  TORN "); n > 1 {
				t.Errorf("%d writes are lost, want one at most:\n%s", n, out)
			}
		})
	}
}

// TestCleanStates: what people do with files they care about loses nothing: writers that sync, a
// tree that is copied in. An editor's save is among the scripts.
func TestCleanStates(t *testing.T) {
	dir := t.TempDir()
	image, job, src := filepath.Join(dir, "a.img"), filepath.Join(dir, "writers.fio"), filepath.Join(dir, "src")
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code := Main(args, strings.NewReader(""), &out, &out); code != 0 {
			t.Fatalf("btrlab %s: exit code %d\n%s", strings.Join(args, " "), code, out.String())
		}
		return out.String()
	}
	run("mkfs", "-q", "--size", "256M", image)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(job, "[writers]\nrw=randwrite\nfilesize=256k\nsize=16k\nbssplit=4k/20:8k/20:16k/20:32k/10:64k/30\nfallocate=none\nfsync=1\nnumjobs=8\n")
	if err := os.MkdirAll(filepath.Join(src, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(src, "a"), strings.Repeat("a", 30000))
	write(filepath.Join(src, "deep", "b"), "b")
	for _, policy := range []string{"modern!FSYNC_LOG", "modern"} {
		for _, what := range [][]string{{"--job", job, image}, {image, "--", "put", "-r", src, "/src"}} {
			out := run(append([]string{"crash", "--states", "4", "--save", "", "--policy", policy}, what...)...)
			if !strings.Contains(out, "nothing that was promised is lost") || strings.Contains(out, "; 0 crash states") {
				t.Error(out)
			}
		}
	}
}

// TestMuseumCuts: an exhibit with a script loses what was promised under its wrong order and
// nothing under the right one; the page says both.
func TestMuseumCuts(t *testing.T) {
	for number, loss := range map[string]string{"47": "LOST data: /foo at 16384 has 0x61, want 0x00", "48": "LOST data: /foo at 24000 has 0x61, want 0x00",
		"52": "LOST names: inode 257 has 0 names, want 1", "53": "file exists"} {
		var out bytes.Buffer
		code := Main([]string{"museum", number, "--schedules", "100"}, strings.NewReader(""), &out, &out)
		text := strings.Join(strings.Fields(out.String()), " ")
		_, cut, _ := strings.Cut(text, "the same with a power cut")
		wrong, right, _ := strings.Cut(cut, "right order ")
		if code != 0 || !strings.Contains(wrong, loss) || !strings.Contains(right, "nothing that was promised is lost in ") {
			t.Errorf("museum %s: exit code %d\n%s", number, code, out.String())
		}
	}
}
