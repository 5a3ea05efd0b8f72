//go:build !portable

package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"btrlab/internal/script"
)

// A workload's lines do in a folder of Linux what they say; what the kernel refuses is an errno,
// and a line that is none of a workload is another error.
func TestDo(t *testing.T) {
	dir := t.TempDir()
	for _, l := range script.Steps(`mkdir /A; touch /A/foo; write --data q --length 16384 /A/foo; write --data rs --offset 8000 --length 4096 /A/foo;
		truncate --size 2500 /A/foo; ln /A/foo /bar; ln -s /A/foo /A/bar; mv /bar /foo; mkdir /gone; rm -r /gone; touch /gone; rm /gone; mv /A /B; fsync /foo;
		fdatasync /B/foo; fsync /B; sync`) {
		if err := Do(dir, l); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
	}
	have, err := Facts(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(have) != 5 || !strings.Contains(have["B/foo"], "links=2") || !strings.Contains(have["B/foo"], "size=2500") || !strings.Contains(have["foo"], "same=B/foo") ||
		!strings.HasSuffix(have["B/bar"], "to=/A/foo") || have["."] == "" || have["B"] == "" {
		t.Errorf("the tree: %q", have)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "foo")); err != nil || !bytes.Equal(b, bytes.Repeat([]byte("q"), 2500)) {
		t.Errorf("foo has %.20q, %v", b, err)
	}
	for _, l := range []string{"rm /none", "mkdir /B", "fsync /none", "rm -r /B"} {
		if no := syscall.Errno(0); !errors.As(Do(dir, l), &no) {
			t.Errorf("%s: %v, want an errno", l, Do(dir, l))
		}
	}
	for _, l := range []string{"chmod 600 /foo", "mv /foo", "write /foo --length", "sync /foo"} {
		if no := syscall.Errno(0); Do(dir, l) == nil || errors.As(Do(dir, l), &no) {
			t.Errorf("%s: %v, want an error that is no errno", l, Do(dir, l))
		}
	}
}

// A change of anything that can be seen is in the facts.
func TestFacts(t *testing.T) {
	dir := t.TempDir()
	was := ""
	for _, l := range []string{"touch /f", "write --data a /f", "write --data b /f", "truncate --size 9000 /f", "ln /f /g", "mkdir /d", "mv /g /d/g", "rm /d/g", "ln -s x /s", "rm /s"} {
		if err := Do(dir, l); err != nil {
			t.Fatal(l, err)
		}
		facts, err := Facts(dir)
		if err != nil {
			t.Fatal(err)
		}
		for path, text := range facts { // fmt orders a map
			words := strings.Fields(text)
			words[2] = "" // two operations may have one time
			facts[path] = strings.Join(words, " ")
		}
		now := fmt.Sprint(facts)
		if now == was {
			t.Errorf("%s is not seen: %s", l, now)
		}
		was = now
	}
}

// What a file has other than another makes it of that one: bytes, holes where there were bytes, and
// a longer end.
func TestDelta(t *testing.T) {
	dir := t.TempDir()
	base, img, back := filepath.Join(dir, "base"), filepath.Join(dir, "img"), filepath.Join(dir, "back")
	was := make([]byte, 1<<20)
	for _, at := range []int{0, 5 * packed, 5*packed + 17, 40 * packed} {
		was[at] = 1
	}
	now := bytes.Clone(was)
	now[0], now[5*packed], now[20*packed+3] = 0, 9, 7
	now = append(now, make([]byte, packed+5)...)
	now[len(now)-1] = 3
	for path, b := range map[string][]byte{base: was, back: was} {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The image has holes.
	if err := os.WriteFile(img, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(img, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range now {
		if c != 0 {
			if _, err := f.WriteAt([]byte{c}, int64(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	delta, err := Delta(img, base)
	if err != nil {
		t.Fatal(err)
	}
	if len(delta) > 8*packed {
		t.Errorf("a difference of six runs has %d bytes", len(delta))
	}
	if err := Patch(delta, back); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(back); err != nil || !bytes.Equal(b, now) {
		t.Errorf("the file that was made again differs, %v", err)
	}
}
