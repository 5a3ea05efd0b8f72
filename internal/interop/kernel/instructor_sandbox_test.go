package kernel

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"btrlab/internal/interop"
	"btrlab/internal/study/course"
	"btrlab/internal/study/handout"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
)

// containerfile is what labs/kit/Containerfile does: which folder is copied to where, what is run
// in the image, and what a container runs.
type containerfile struct{ copied, run, cmd string }

func readContainerfile(t *testing.T, path string) (c containerfile) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([A-Z]+) (.*)$`).FindAllStringSubmatch(string(b), -1) {
		switch m[1] {
		case "FROM":
		case "COPY":
			c.copied = strings.TrimPrefix(m[2], ". ")
		case "RUN":
			c.run = m[2]
		case "CMD":
			c.cmd = m[2]
		default:
			t.Fatalf("%s: line %q is not known to this test", path, m[0])
		}
	}
	if c.copied == "" || c.run == "" || c.cmd == "" {
		t.Fatalf("%s: have %+v, want COPY, RUN and CMD", path, c)
	}
	return c
}

// fakeImage is a folder that stands for the image: the host's programs and Go, read-only, and an
// /autograder.
const fakeImage = `set -eu
root=$1 goroot=$2 base=$3
shift 3
mount -t tmpfs sandbox "$root"
for d in bin lib lib32 lib64 usr sbin; do
	if [ -L "/$d" ]; then cp -a "/$d" "$root/$d"
	elif [ -d "/$d" ]; then mkdir -p "$root/$d"; mount --rbind "/$d" "$root/$d"; mount -o remount,bind,ro "$root/$d"; fi
done
mkdir -p "$root/dev" "$root/proc" "$root/tmp" "$root/root" "$root/goroot" "$root/autograder"
touch "$root/dev/null" && mount --bind /dev/null "$root/dev/null"
mount -t proc proc "$root/proc"
mount --bind "$goroot" "$root/goroot" && mount -o remount,bind,ro "$root/goroot"
mount --rbind "$base" "$root/autograder"
exec chroot "$root" /usr/bin/env -i PATH=/goroot/bin:/usr/bin:/bin HOME=/root /bin/sh -c "$1"
`

// TestNumbersSandbox is the trial of labs/kit/Containerfile without a container engine: its RUN and
// CMD lines in a chroot with namespaces of its own, without a network. The solution gets full
// marks, code that never ends a line; nothing of the host can be seen or written, and the limit
// holds.
//
// What a container engine adds, cgroups for the memory of the whole, is not tried. It measures
// nothing, but it builds all anew, for minutes, and so is with those that make bench runs.
func TestNumbersSandbox(t *testing.T) {
	interop.Measurement(t)
	need.All(t, need.Root, "unshare", "chroot", "timeout")
	top, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(top, judges.HandoutFile)); err == nil {
		t.Skip("SKIPPED: this tree is a handout, which has no solution")
	}
	c := readContainerfile(t, filepath.Join(top, "labs", "kit", "Containerfile"))
	l, err := course.Lookup(4)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := handout.Committed(top)
	if err != nil {
		t.Fatal(err)
	}
	files, err := handout.From(tree)
	if err != nil {
		t.Fatal(err)
	}
	if files, err = handout.Autograder(top, l, files, handout.AutograderOptions{Limit: 9 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	base, image := filepath.Join(dir, "autograder"), filepath.Join(dir, "image")
	for _, d := range []string{base, image} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if c.copied != "/autograder/source" {
		t.Fatalf("the Containerfile copies to %s, want /autograder/source", c.copied)
	}
	if err := handout.WriteTree(filepath.Join(base, "source"), files); err != nil {
		t.Fatal(err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	inside := func(command string) string {
		t.Helper()
		x := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "bash", "-c", fakeImage, "sandbox",
			image, strings.TrimSpace(string(goroot)), base, command)
		out, err := x.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	inside(c.run)
	submit := func(text string) {
		t.Helper()
		file := filepath.Join(base, "submission", "setsize.go")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	graded := func() (score float64, output string) {
		t.Helper()
		said := inside(c.cmd)
		var r struct {
			Score *float64
			Tests []struct{ Output string }
		}
		b, err := os.ReadFile(filepath.Join(base, "results", "results.json"))
		if err != nil || json.Unmarshal(b, &r) != nil || r.Score == nil || len(r.Tests) == 0 {
			t.Fatalf("%v\n%s%s", err, b, said)
		}
		return *r.Score, r.Tests[0].Output
	}
	solution, err := os.ReadFile(filepath.Join(l.Dir(top), "instructor", "_solution", "setsize.go"))
	if err != nil {
		t.Fatal(err)
	}
	submit(string(solution))
	if score, output := graded(); score != 100 {
		t.Errorf("the solution has %g points: %s", score, output)
	}
	submit("package p\n\nimport \"btrlab/internal/policy\"\n\nfunc Steps() []policy.SetsizeStep {\n\tfor {\n\t}\n}\n\nfunc Answers() map[string]string { return nil }\n")
	if score, output := graded(); score != 0 || !strings.Contains(output, "setsize.go:6: Steps took 2s of processor time") {
		t.Errorf("code that never ends has %g points: %s", score, output)
	}
	for command, want := range map[string]string{
		"ls /":                                        "autograder\nbin\n",
		"cat " + top + "/go.mod 2>&1 || true":         "No such file or directory",
		"touch /usr/x 2>&1 || true":                   "Read-only file system",
		"grep -c : /proc/net/dev; true":               "1\n", // lo, which is down
		strings.Split(c.cmd, "&&")[0] + "; ulimit -v": "8388608\n",
		"ls -d /proc/[0-9]* | wc -l":                  "", // below
	} {
		out := inside(command)
		if !strings.Contains(out, want) {
			t.Errorf("%s: have %q, want %q", command, out, want)
		}
		if want == "" && len(bytes.TrimSpace([]byte(out))) > 1 {
			t.Errorf("%s: %s processes can be seen, want those of the sandbox", command, out)
		}
	}
}
