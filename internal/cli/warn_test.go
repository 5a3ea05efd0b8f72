package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// TestLogTreeWarning: every verb that reads says that it does not see what only a log tree has.
func TestLogTreeWarning(t *testing.T) {
	dir := t.TempDir()
	img := filepath.Join(dir, "disk.img")
	run := func(args ...string) (code int, out, warned string) {
		var o, e bytes.Buffer
		code = Main(args, strings.NewReader("hello"), &o, &e)
		return code, o.String(), e.String()
	}
	for _, args := range [][]string{{"mkfs", "--size", "200M", img}, {"put", "-", img + ":/f"}} {
		if code, _, e := run(args...); code != 0 {
			t.Fatalf("%v: %s", args, e)
		}
	}
	verbs := [][]string{{"info", img}, {"ls", img + ":/"}, {"cat", img + ":/f"}, {"stat", img + ":/f"}, {"df", img}, {"check", img},
		{"dump", "super", img}, {"get", "-r", img + ":/f"}}
	const warning = "shown is the state before the last fsyncs"
	try := func(want bool) {
		t.Helper()
		for i, args := range verbs {
			if args[0] == "get" {
				args = append(args[:3:3], filepath.Join(dir, "got"+map[bool]string{true: "1"}[want]))
			}
			code, out, e := run(args...)
			if strings.Contains(e, warning) != want || strings.Contains(out, warning) {
				t.Errorf("%v: have exit code %d and %q on stderr, want warning %v", args, code, e, want)
			}
			if i < 5 && code != 0 {
				t.Errorf("%v: have exit code %d want 0", args, code)
			}
		}
	}
	try(false)
	dev, err := blockdev.Open(img, 0)
	if err != nil {
		t.Fatal(err)
	}
	tk := sched.NewTask("test")
	p := make([]byte, format.SuperSize)
	if err := blockdev.Read(tk, dev, p, format.SuperOffset); err != nil {
		t.Fatal(err)
	}
	var s format.Super
	s.Decode(p)
	s.LogRoot = s.Root
	s.Encode(p)
	if err := blockdev.Write(tk, dev, p, format.SuperOffset); err != nil {
		t.Fatal(err)
	}
	dev.Close()
	try(true)
}
