package nbd

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"btrlab/internal/errno"
)

// connected is a client of a server of d, over TCP on this machine.
func connected(t *testing.T, d Disk, o Options) (*Client, *Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(d, o)
	go s.Serve(l)
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(nc, "")
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// TestClient: requests of many goroutines are under way at once, and each gets its own reply;
// errors have their numbers, and the end of the server ends every call.
func TestClient(t *testing.T) {
	d := newMemDisk(1 << 20)
	c, s := connected(t, d, Options{Name: "disk"})
	if c.Size() != 1<<20 {
		t.Errorf("size %d", c.Size())
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				off := int64(g*50+i) * 2048
				want := bytes.Repeat([]byte(fmt.Sprintf("%04d", g*50+i)), 512)
				p := make([]byte, len(want))
				if err := errors.Join(c.WriteAt(want, off), c.ReadAt(p, off)); err != nil || !bytes.Equal(p, want) {
					t.Errorf("at %d: %v, %q", off, err, p[:8])
				}
			}
		})
	}
	wg.Wait()
	if err := c.Flush(); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	if d.flushes != 1 {
		t.Errorf("%d flushes of the disk, want 1", d.flushes)
	}
	d.mu.Unlock()
	if err := c.WriteAt([]byte("beyond"), 1<<20); !errors.Is(err, errno.ENOSPC) {
		t.Errorf("beyond the end: %v", err)
	}
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := c.Flush(); err == nil {
		t.Error("a flush without a server")
	}
	c.Close()
}

// TestClientNames: a name that the server does not have, and one who is no server, are told.
func TestClientNames(t *testing.T) {
	c, s := connected(t, newMemDisk(4096), Options{Name: "disk"})
	nc, err := net.Dial("tcp", c.nc.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(nc, "other"); err == nil {
		t.Error("an export that is not there")
	}
	if err := errors.Join(c.Close(), s.Shutdown()); err != nil {
		t.Error(err)
	}
	a, b := net.Pipe()
	go func() { b.Write([]byte("HTTP/1.1 400 Bad Request\r\n")) }()
	if _, err := NewClient(a, ""); err == nil {
		t.Error("a server of something else")
	}
}
