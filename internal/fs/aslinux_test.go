package fs_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// TestRenamesAsLinux: what renames of and over files, directories and subvolumes answer, as Linux
// did. A file over a subvolume took the lock of subvolumes under that of the file, against the
// order.
func TestRenamesAsLinux(t *testing.T) {
	x := fstest.New(t)
	for _, path := range []string{"/sv", "/sv/in", "/sv2"} {
		x.Must(x.FS.Subvolume(x.T, path, 0o755))
	}
	for _, path := range []string{"/d", "/d/e", "/sv/dd"} {
		x.Must(x.FS.Mkdir(x.T, path, 0o755))
	}
	for _, path := range []string{"/f", "/sv/g"} {
		x.Must(x.Create(path).Close(x.T))
	}
	text, err := os.ReadFile("testdata/renames.txt")
	x.Must(err)
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		n++
		from, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		to, want, _ := strings.Cut(rest, " ")
		err := x.FS.Rename(x.T, "/"+from, "/"+to)
		have := "ok"
		var no errno.Errno
		if errors.As(err, &no) {
			have = no.Error()
		} else if err == nil {
			_ = x.FS.Rename(x.T, "/"+to, "/"+from) // as there; not all can be
		}
		if have != want {
			t.Errorf("%s to %s: have %v want %s", from, to, err, want)
		}
	}
	if n != 80 {
		t.Errorf("%d renames", n)
	}
}

// TestPunchTimesAsLinux: whether a punch changes mtime, for layouts of a file, offsets and lengths,
// as Linux 6.18 did: T for yes. Only one hole that has all of the range leaves the file as it is,
// and the map of a hole beyond EOF begins with a block.
func TestPunchTimesAsLinux(t *testing.T) {
	x := fstest.New(t)
	old := time.Unix(1e9, 0)
	write := func(n int, off int64) func(f *fs.File) {
		return func(f *fs.File) { x.WriteAt(f, []byte(strings.Repeat("x", n)), off) }
	}
	size := func(n int64) func(f *fs.File) { return func(f *fs.File) { x.Must(f.Truncate(x.T, n)) } }
	for _, c := range []struct {
		layout string
		make   []func(f *fs.File)
		want   string
	}{
		{"data", []func(*fs.File){write(10000, 0)}, "TTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT........TTTTTT..TTTTT.........T.TT."},
		{"a hole at the end", []func(*fs.File){write(4096, 0), size(20000)}, "TTTTTTTTTTTTTTTTTTTTT.....TT.....TT.....TT.....TT.....TT...TTTT..TTTTT.........T.TT."},
		{"a hole", []func(*fs.File){size(12345)}, ".....TT.....TT.....TT.....TT.....TT.....TT....TTT...TTTT.TTTTTT..TTTTT.........T.TT."},
		{"a hole between", []func(*fs.File){write(4096, 0), write(8192, 16384)}, "TTTTTTTTTTTTTTTTTTTTT.....TT.....TT.....TT....TTT...TTTT.TTTTTTTTTTTTT.........T.TT."},
		{"a hole of whole blocks at the end", []func(*fs.File){write(4096, 0), size(16384)}, "TTTTTTTTTTTTTTTTTTTTT.....TT.....TT.....TT....TTT...TTTT.TTTTTT..TTTTT.........T.TT."},
		{"inline", []func(*fs.File){write(100, 0)}, "TTTTTTTTTTTTTTTTTTTTT.........T.TT..........T.TT.........TTTTTT..TTTTT.........T.TT."},
		{"nothing", nil, ".........T.T...TTTTTT.........T.TT..........T.TT.........TTTTTT..TTTTT.........T.TT."},
		{"data after a hole", []func(*fs.File){write(3000, 8192)}, ".....TT....TTT...TTTT...TTTT..TTTTTTTTTTTTTTTTTTT........TTTTTT..TTTTT.........T.TT."},
	} {
		have := ""
		for _, off := range []int64{0, 100, 4095, 4096, 5000, 8192, 10000, 12288, 16383, 20000, 24576, 30001} {
			for _, n := range []int64{1, 100, 4096, 5000, 8192, 20000, 100000} {
				f := x.Create("/f")
				for _, do := range c.make {
					do(f)
				}
				x.Must(f.Node().SetAttr(x.T, fs.SetAttr{Set: fs.SetMtime, Mtime: old}))
				x.Must(f.Fallocate(x.T, 0x3, off, n))
				if f.Stat(x.T).Mtime.Equal(old) {
					have += "."
				} else {
					have += "T"
				}
				x.Must(f.Close(x.T))
				x.Must(x.FS.Unlink(x.T, "/f"))
			}
		}
		if have != c.want {
			t.Errorf("%s:\nhave %s\nwant %s", c.layout, have, c.want)
		}
	}
}
