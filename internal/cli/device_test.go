package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// deaf is an output that nobody takes.
type deaf struct{}

func (deaf) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A device that has come in stays, also when nothing more can be said about it: the file system has
// it. A file that was made for nothing goes.
func TestDeviceStays(t *testing.T) {
	t.Chdir(t.TempDir())
	run := func(want int, out *bytes.Buffer, args ...string) {
		t.Helper()
		var errw bytes.Buffer
		var code int
		if out == nil {
			code = Main(args, strings.NewReader(""), deaf{}, &errw)
		} else {
			code = Main(args, strings.NewReader(""), out, &errw)
		}
		if code != want {
			t.Fatalf("%v: exit code %d, %s", args, code, errw.String())
		}
	}
	var out bytes.Buffer
	run(0, &out, "mkfs", "-q", "--size", "128M", "a.img")
	run(1, nil, "device", "add", "a.img", "b.img", "--size", "128M")
	run(0, &out, "check", "a.img", "--device", "b.img")
	run(1, nil, "device", "replace", "a.img", "--device", "b.img", "b.img", "c.img", "--size", "128M")
	run(0, &out, "check", "a.img", "--device", "c.img")
	run(1, &out, "device", "replace", "a.img", "--device", "c.img", "7", "d.img", "--size", "128M")
	run(1, &out, "device", "add", "a.img", "--device", "c.img", "e.img", "--size", "1M")
	if list, err := filepath.Glob("[de].img"); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if _, err := os.Stat("c.img"); err != nil {
		t.Error(err)
	}
}
