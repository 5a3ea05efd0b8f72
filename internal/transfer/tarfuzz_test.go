//go:build unix

package transfer

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/testing/fstest"
)

// FuzzTar: whatever an archive says, what goes in leaves the image sound, and a new file system
// of it is sound.
func FuzzTar(f *testing.F) {
	f.Add(bytesOf(tar.Header{Name: "d/", Typeflag: tar.TypeDir}, tar.Header{Name: "d/f", Typeflag: tar.TypeReg, Size: 5},
		tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "d/f"}, tar.Header{Name: "s", Typeflag: tar.TypeSymlink, Linkname: "../.."}))
	f.Add(bytesOf(tar.Header{Name: "n", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: 5,
		PAXRecords: map[string]string{xattrRecord + "user.a": "v"}, Format: tar.FormatPAX}))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := fstest.New(t, fstest.Size(64<<20)) // is checked at the end
		_ = NewIn(x.T, x.FS, &watch{t: t}).Tar(io.LimitReader(bytes.NewReader(b), 1<<20), "/")
		x.Must(x.FS.Sync(x.T))
		s := NewScan(&watch{t: t})
		defer s.Close()
		root, err := s.Tar(io.LimitReader(bytes.NewReader(b), 1<<20))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("two lines: %v", err)
			}
			return
		}
		dev := blockdev.NewMemory(64 << 20)
		if _, err := s.Build(x.T, dev, mkfs.Options{}, root); err != nil {
			t.Fatal(err)
		}
		x.Check(dev)
	})
}

func bytesOf(entries ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range entries {
		_ = w.WriteHeader(&entries[i])
		_, _ = w.Write(make([]byte, entries[i].Size))
	}
	_ = w.Close()
	return b.Bytes()
}
