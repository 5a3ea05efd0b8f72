package experiment

import (
	"bytes"
	"testing"

	"btrlab/internal/fs"
	"btrlab/internal/measure/fio"
	"btrlab/internal/testing/fstest"
)

// TestSpread: what goes over the border of two files is in both, each part where it belongs, and is
// read back as one.
func TestSpread(t *testing.T) {
	x := fstest.New(t)
	const size = 8192
	s := &spread{size: size}
	var files []*fs.File
	for _, name := range []string{"/a", "/b", "/c"} {
		f := x.Create(name)
		files = append(files, f)
		s.parts = append(s.parts, fio.Target(f))
	}
	want := make([]byte, 3*size)
	for i := range want {
		want[i] = byte(i / 512)
	}
	for off := 0; off < len(want); off += 5000 {
		end := min(off+5000, len(want))
		if n, err := s.WriteAt(x.T, want[off:end], int64(off)); n != end-off || err != nil {
			t.Fatalf("wrote %d, %v want %d", n, err, end-off)
		}
	}
	for i, name := range []string{"/a", "/b", "/c"} {
		if !bytes.Equal(x.ReadFile(name), want[i*size:(i+1)*size]) {
			t.Errorf("%s has other bytes than it should", name)
		}
	}
	have := make([]byte, len(want)-100)
	if n, err := s.ReadAt(x.T, have, 100); n != len(have) || err != nil || !bytes.Equal(have, want[100:]) {
		t.Errorf("read %d, %v: other bytes than were written", n, err)
	}
	if s.Size(x.T) != 3*size {
		t.Errorf("size %d want %d", s.Size(x.T), 3*size)
	}
	for _, f := range files {
		x.Must(f.Close(x.T))
	}
}
