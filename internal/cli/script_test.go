package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/script"
)

// TestScriptIsSh: the lines that package script understands do in sh what they do there. The file
// systems look the same after each line, errors and all.
func TestScriptIsSh(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := t.TempDir()
	sh, own := filepath.Join(dir, "sh.img"), filepath.Join(dir, "own.img")
	verb(t, 0, "mkfs", "--size", "64M", sh)
	verb(t, 0, "mkfs", "--size", "64M", own)
	lines := []string{
		"touch /f /g", "mkdir /d", "mkdir -p -m 700 /d/e/h", "mkdir -p /d", "mkdir /d", "mkdir -p /f", "write --data abc --offset 3 /f", "write --data xy --length 5001 /g",
		"write --length 10 --offset 4k /g", "write --direct --length 8k /f", "write --length 1 /none", "truncate --size 6k /f", "fallocate --length 1M /g",
		"fallocate --punch-hole --offset 4k --length 8k /f", "fallocate --zero-range --keep-size --length 20k /f", "fallocate --keep-size --length 2M /f", "chmod 4711 /f /none",
		"setxattr user.a 'a b' /f", "setxattr user.b c /g", "removexattr user.b /g", "removexattr user.b /g", "removexattr user.b /none", "ln /f /f2", "ln /f /d", "ln -s ../x /d",
		"ln -s x /l", "ln /f /f2", "mv /g /d", "mv /d /d/e", "mv /f2 /f3", "mv /none /f3", "fsync /f /d", "fdatasync /f", "sync", "drop-caches", "rm /f3", "rm /none",
	}
	task := sched.NewTask("test")
	// run runs a line on the image own, and returns its error.
	run := func(l script.Line) error {
		dev, err := blockdev.Open(own, 0)
		if err != nil {
			t.Fatal(err)
		}
		x, err := fs.Open(task, []blockdev.Device{dev}, fs.Options{Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
		if err != nil {
			t.Fatal(err)
		}
		ran := l.Run(task, x)
		if err := errors.Join(x.Close(task), dev.Close()); err != nil {
			t.Fatal(err)
		}
		return ran
	}
	look := func(image string) string {
		return verb(t, 0, "ls", "-lR", image) + verb(t, 0, "cat", image+":/f") + verb(t, 0, "getxattr", image+":/f")
	}
	used := map[string]bool{}
	for _, text := range lines {
		used[strings.Fields(text)[0]] = true
		l, err := script.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		err = run(l)
		file := filepath.Join(dir, "line")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		want := 0
		if err != nil {
			want = 1
		}
		verb(t, want, "sh", sh, file)
		if have, want := look(own), look(sh); have != want {
			t.Fatalf("%s: script\n%s\nsh\n%s", text, have, want)
		}
	}
	for _, name := range script.Verbs() {
		if !used[name] {
			t.Errorf("no line has the verb %s", name)
		}
	}
}
