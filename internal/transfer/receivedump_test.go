package transfer

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"btrlab/internal/format"
	ss "btrlab/internal/sendstream"
)

// TestDumpStream: each command is a line in the columns of btrfs receive --dump; what cannot be
// printed is escaped, and so cannot move the cursor of a terminal. internal/interop compares with
// that program.
func TestDumpStream(t *testing.T) {
	defer func(was *time.Location) { time.Local = was }(time.Local)
	time.Local = time.FixedZone("", 2*3600)
	b := stream(func(w *ss.Writer) {
		begin(w, "one")
		command(w, ss.C_MKFILE, ss.A_PATH, "a b\x1b\\\n")
		command(w, ss.C_MKNOD, ss.A_PATH, "null", ss.A_MODE, 0o20666, ss.A_RDEV, 0x103)
		command(w, ss.C_SYMLINK, ss.A_PATH, "link", ss.A_PATH_LINK, "to \xff")
		command(w, ss.C_RENAME, ss.A_PATH, "link", ss.A_PATH_TO, "dir/")
		command(w, ss.C_SET_XATTR, ss.A_PATH, strings.Repeat("p", 40), ss.A_XATTR_NAME, "user.x", ss.A_XATTR_DATA, "v\x00")
		command(w, ss.C_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 4096, ss.A_DATA, "data")
		command(w, ss.C_CLONE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 1, ss.A_CLONE_LEN, 2, ss.A_CLONE_UUID, sentUUID, ss.A_CLONE_CTRANSID, 3, ss.A_CLONE_PATH, "g", ss.A_CLONE_OFFSET, 4)
		command(w, ss.C_TRUNCATE, ss.A_PATH, "f", ss.A_SIZE, 5)
		command(w, ss.C_CHMOD, ss.A_PATH, "", ss.A_MODE, 0o755)
		command(w, ss.C_CHOWN, ss.A_PATH, "f", ss.A_UID, 1, ss.A_GID, 2)
		w.Begin(ss.C_UTIMES)
		w.Text(ss.A_PATH, "f")
		for i, a := range []ss.Attr{ss.A_ATIME, ss.A_MTIME, ss.A_CTIME} {
			w.Time(a, format.Timespec{Sec: int64(i)})
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		command(w, ss.C_FALLOCATE, ss.A_PATH, "f", ss.A_FALLOCATE_MODE, 3, ss.A_FILE_OFFSET, 1, ss.A_SIZE, 2)
		command(w, ss.C_END)
	})
	const want = `subvol          ./one                           uuid=00aa0000-0000-0000-0000-000000000000 transid=7
mkfile          ./one/a\ b\e\\\n
mknod           ./one/null                      mode=20666 dev=0x103
symlink         ./one/link                      dest=to\ \377
rename          ./one/link                      dest=./one/dir
set_xattr       ./one/pppppppppppppppppppppppppppppppppppppppp name=user.x data=v\000 len=2
write           ./one/f                         offset=4096 len=4
clone           ./one/f                         offset=1 len=2 from=./one/g clone_offset=4
truncate        ./one/f                         size=5
chmod           ./one/                          mode=755
chown           ./one/f                         gid=2 uid=1
utimes          ./one/f                         atime=1970-01-01T02:00:00+0200 mtime=1970-01-01T02:00:01+0200 ctime=1970-01-01T02:00:02+0200
fallocate       ./one/f                         mode=3 offset=1 len=2
`
	var out bytes.Buffer
	if err := DumpStream(&out, bytes.NewReader(append(b, b...)), nil); err != nil || out.String() != want+want {
		t.Errorf("%v, have:\n%s\nwant twice:\n%s", err, out.String(), want)
	}
	out.Reset()
	if err := DumpStream(&out, bytes.NewReader(b[:len(b)-5]), nil); err == nil || out.String() != want {
		t.Errorf("cut short: %v, have:\n%s", err, out.String())
	}
	stop := errors.New("stop")
	if err := DumpStream(&out, bytes.NewReader(b), func() error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if err := DumpStream(&out, strings.NewReader(""), nil); err == nil {
		t.Error("an empty stream: no error")
	}
}
