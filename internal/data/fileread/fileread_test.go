package fileread_test

import (
	"errors"
	"os"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/datatest"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

const pageSize = pagecache.PageSize

// Data that does not match its checksum is never handed out.
func TestBadChecksum(t *testing.T) {
	w, f := datatest.Flaky(t, 256<<20)
	ip := w.Create(0)
	data := datatest.Pattern(64<<10, 1)
	datatest.Must(t, w.Write(w.T, ip, data, 0))
	w.Sync()
	at := w.Physical(ip.Ino, 8192)
	good := make([]byte, pageSize)
	datatest.Must(t, blockdev.Read(w.T, f, good, at))
	bad := append([]byte(nil), good...)
	bad[100] ^= 1
	datatest.Must(t, blockdev.Write(w.T, f, bad, at))
	w.FS.Cache.DropClean(w.T)
	if _, err := w.Reader.ReadPage(w.T, ip, 2, 1, nil); !errors.Is(err, errno.EIO) {
		t.Fatalf("have %v want EIO", err)
	}
	if got := w.Read(w.T, ip, 0, 8192); string(got) != string(data[:8192]) {
		t.Fatal("the pages before do not read")
	}
	datatest.Must(t, blockdev.Write(w.T, f, good, at))
	w.FS.Cache.DropClean(w.T)
	w.Expect(ip, data)
	w.Close()
}
