package cli

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestServe serves a file as a disk to a client that knows as little of NBD as it can: what it has
// written and flushed is in the file, and the end commits. A file system that has lost a device is
// written to the other one, with a line that says so.
func TestServe(t *testing.T) {
	img := filepath.Join(t.TempDir(), "disk.img")
	verb(t, 0, "mkfs", "-q", "--size", "256M", img)
	verb(t, 0, "touch", img+":/vm.raw")
	verb(t, 0, "truncate", "--size", "1M", img+":/vm.raw")
	left, gone := filepath.Join(t.TempDir(), "left.img"), filepath.Join(t.TempDir(), "gone.img")
	verb(t, 0, "mkfs", "-q", "--size", "128M", "-d", "raid1", "-m", "raid1", "--device", gone, left)
	verb(t, 0, "touch", "--device", gone, left+":/vm.raw")
	verb(t, 0, "truncate", "--size", "1M", "--device", gone, left+":/vm.raw")
	for _, c := range []struct {
		spec  string
		size  uint64
		flags []string
		warn  string
	}{{img + ":/vm.raw", 1 << 20, nil, ""}, {img, 256 << 20, nil, ""},
		{left + ":/vm.raw", 1 << 20, []string{"--degraded"}, "btrlab: warning: " + left + ": degraded, without the missing devid 2\n"}} {
		r, w := io.Pipe()
		var errw bytes.Buffer
		a := newCmdline(nil, w, &errw)
		done := make(chan error, 1)
		go func() {
			err := a.run(append([]string{"serve", "--nbd", "tcp:127.0.0.1:0", c.spec}, c.flags...))
			done <- err
			w.CloseWithError(errors.Join(err, io.EOF))
		}()
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		_, addr, _ := strings.Cut(line, "nbd://")
		addr, _, _ = strings.Cut(addr, ";")
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		read := func(n int) []byte {
			p := make([]byte, n)
			if _, err := io.ReadFull(nc, p); err != nil {
				t.Fatal(err)
			}
			return p
		}
		be := binary.BigEndian
		request := func(cmd uint16, off uint64, n uint32, payload string) {
			p := be.AppendUint16(be.AppendUint16(be.AppendUint32(nil, 0x25609513), 0), cmd)
			p = be.AppendUint32(be.AppendUint64(be.AppendUint64(p, 7), off), n)
			if _, err := nc.Write(append(p, payload...)); err != nil {
				t.Fatal(err)
			}
			if h := read(16); be.Uint32(h[4:]) != 0 {
				t.Fatalf("command %d: error %d", cmd, be.Uint32(h[4:]))
			}
		}
		read(18)
		if _, err := nc.Write(append([]byte{0, 0, 0, 3}, "IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00"...)); err != nil {
			t.Fatal(err)
		}
		if have := be.Uint64(read(10)); have != c.size {
			t.Errorf("%s: have size %d want %d", c.spec, have, c.size)
		}
		last := c.size - 5
		request(1, last, 5, "hello")
		request(3, 0, 0, "")
		if request(0, last, 5, ""); string(read(5)) != "hello" {
			t.Error("what was written is not read")
		}
		request(6, last, 2, "")
		close(a.Stopped)
		if err := <-done; err != nil || errw.String() != c.warn {
			t.Errorf("%s: the end is %v, %q", c.spec, err, errw.String())
		}
		nc.Close()
	}
	if have := verb(t, 0, "cat", "--offset", "1048571", "--length", "5", img+":/vm.raw"); have != "\x00\x00llo" {
		t.Errorf("the file ends with %q", have)
	}
	verb(t, 0, "check", img)
	if have := verb(t, 0, "cat", "--degraded", "--offset", "1048571", left+":/vm.raw"); have != "\x00\x00llo" {
		t.Errorf("the file that was written without a device ends with %q", have)
	}
}
