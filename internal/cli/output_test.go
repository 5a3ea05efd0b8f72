package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/cli/app"
)

// TestOutputFirst: a path that cannot be written is an error before the verb has worked, whatever
// it would have written there at its end. The paths that can be are left as they were: a verb that
// fails for another reason makes no empty file.
func TestOutputFirst(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "no folder", "out")
	for _, args := range []string{
		"compare --out OUT", "reproduce 002 --out OUT", "reproduce 001 --save-calibration OUT", "calibrate --out OUT",
		"bench ../measure/seeds/seed-002.fio --runtime vtime --gantt OUT", "replay truncate-race 11:1 --policy unlocked --out OUT",
		"lab grade 4 --gradescope OUT", "lab grade 12 --report OUT", "lab grade 1 --all . --csv OUT",
	} {
		words := strings.Fields(args)
		words[len(words)-1] = bad
		var out bytes.Buffer
		// without a task nothing can run
		a := newCmdline(strings.NewReader(""), &out, io.Discard)
		if err := a.run(words); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), bad) || out.Len() > 0 {
			t.Errorf("%s: %v, want %s not to be there\n%s", args, err, bad, out.String())
		}
	}
	fresh := filepath.Join(t.TempDir(), "out.html")
	verb(t, app.ExitUsage, "replay", "truncate-race", "99:1", "--out", fresh)
	if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a verb that failed has left %s: %v", fresh, err)
	}
}

// TestOutputFull: a verb whose output was cut off says so and fails, however it prints.
func TestOutputFull(t *testing.T) {
	img := filepath.Join(t.TempDir(), "a.img")
	verb(t, 0, "mkfs", "-q", "--size", "64M", img)
	verb(t, 0, "mkdir", img+":/d")
	full := errors.New("disk full")
	for _, args := range [][]string{{"info", img}, {"df", img}, {"ls", "-lR", img}, {"check", img}, {"info", "--json", img}, {"policy", "list"}, {"dump", "super", img},
		{"explore", "truncate-race", "--policy", "modern"}, {"explore", "truncate-race", "--policy", "unlocked"}, {"explore", "--list"}} {
		room := 20
		out := writeFunc(func(p []byte) (int, error) {
			n := min(len(p), room)
			if room -= n; n < len(p) {
				return n, full
			}
			return n, nil
		})
		var errw bytes.Buffer
		if code := Main(args, strings.NewReader(""), out, &errw); code != app.ExitFailed || errw.String() != "btrlab: disk full\n" {
			t.Errorf("%v: exit code %d, %q, want 1 and the reason", args, code, errw.String())
		}
	}
}

type writeFunc func(p []byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }
