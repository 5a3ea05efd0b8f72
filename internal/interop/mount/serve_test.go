package mount

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// disk is what the program serves by NBD.
type disk struct {
	uri string
	cmd *exec.Cmd
	err bytes.Buffer
}

// serveDisk serves spec at a socket. It ends with the test.
func serveDisk(t *testing.T, bin, spec string, flags ...string) *disk {
	t.Helper()
	sock := filepath.Join(t.TempDir(), "s")
	d := &disk{uri: "nbd+unix:///?socket=" + sock}
	d.cmd = exec.Command(bin, append([]string{"serve", "--nbd", "unix:" + sock, spec}, flags...)...)
	d.cmd.Stderr = &d.err
	out, err := d.cmd.StdoutPipe()
	interop.Must(t, err)
	interop.Must(t, d.cmd.Start())
	t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		}
	})
	if line, err := io.ReadAll(io.LimitReader(out, 1)); len(line) == 0 {
		_ = d.cmd.Wait()
		t.Fatalf("serve %s: %v %s", spec, err, d.err.String())
	}
	return d
}

// end sends SIGTERM, and wants the program to end without a word.
func (d *disk) end(t *testing.T) {
	t.Helper()
	interop.Must(t, d.cmd.Process.Signal(syscall.SIGTERM))
	if err := d.cmd.Wait(); err != nil || d.err.Len() > 0 {
		t.Errorf("serve ended with %v\n%s", err, d.err.String())
	}
}

// sameFile wants the two files to be alike byte for byte.
func sameFile(t *testing.T, have, want string) {
	t.Helper()
	a, err := os.ReadFile(have)
	interop.Must(t, err)
	b, err := os.ReadFile(want)
	interop.Must(t, err)
	if !bytes.Equal(a, b) {
		t.Errorf("%s and %s differ", have, want)
	}
}

// TestServe: qemu-img, libnbd and fio use a file of an image as a disk, and what they wrote is what
// they read, what the file has, and what both checkers find in order.
func TestServe(t *testing.T) {
	interop.Linux(t, "qemu-img", "nbdinfo", "nbdcopy", "fio")
	bin := interop.Binary(t)
	img := interop.Image(t, "serve.img")
	dir := filepath.Dir(img)
	interop.Btrlab(t, "mkfs", "-q", "--size", "1G", img)
	interop.Btrlab(t, "touch", img+":/vm.raw")
	interop.Btrlab(t, "truncate", "--size", "128M", img+":/vm.raw")
	raw, back := filepath.Join(dir, "raw"), filepath.Join(dir, "back")
	f, err := os.Create(raw)
	interop.Must(t, err)
	fill := interop.NewFiller(20261126)
	for _, at := range []int64{0, 10<<20 + 1, 100 << 20} { // holes between them
		_, err := f.WriteAt(fill.Bytes(3<<20+511), at)
		interop.Must(t, err)
	}
	interop.Must(t, f.Truncate(128<<20))
	interop.Must(t, f.Close())

	d := serveDisk(t, bin, img+":/vm.raw")
	info := interop.Sh(t, "nbdinfo", d.uri)
	for _, want := range []string{"newstyle-fixed", "structured packets", "export-size: 134217728", "base:allocation", "can_fua: true", "can_multi_conn: true",
		"can_trim: true", "can_zero: true", "is_read_only: false", "block_size_minimum: 1", "block_size_maximum: 33554432"} {
		if !strings.Contains(info, want) {
			t.Errorf("nbdinfo does not say %q:\n%s", want, info)
		}
	}
	if list := interop.Sh(t, "nbdinfo", "--list", d.uri); !strings.Contains(list, `export="vm.raw"`) {
		t.Errorf("nbdinfo --list: %s", list)
	}
	interop.Sh(t, "nbdcopy", "--flush", raw, d.uri)
	interop.Sh(t, "nbdcopy", d.uri, back)
	sameFile(t, back, raw)
	// What is data for the file is data for a client, before anything is committed.
	var runs []struct {
		Offset, Length int64
		Type           int
	}
	interop.Must(t, json.Unmarshal([]byte(interop.Sh(t, "nbdinfo", "--map", "--json", d.uri)), &runs))
	var at, data int64
	for _, r := range runs {
		if r.Offset != at {
			t.Errorf("a run begins at %d, want %d", r.Offset, at)
		}
		at += r.Length
		if r.Type == 0 {
			data += r.Length
		}
	}
	if at != 128<<20 || data < 9<<20 || data > 10<<20 {
		t.Errorf("the map covers %d bytes, %d of data: %v", at, data, runs)
	}
	if m := interop.Sh(t, "qemu-img", "map", "--output=json", "-f", "raw", d.uri); !strings.Contains(m, `"data": true`) || !strings.Contains(m, `"data": false`) {
		t.Errorf("qemu-img map: %s", m)
	}

	interop.Must(t, os.Remove(back))
	interop.Sh(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", d.uri, back)
	interop.Sh(t, "qemu-img", "compare", "-f", "qcow2", "-F", "raw", back, raw)
	again := filepath.Join(dir, "again")
	interop.Must(t, os.WriteFile(again, fill.Bytes(40<<20), 0o644))
	interop.Must(t, os.Truncate(again, 128<<20))
	interop.Sh(t, "qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", again, d.uri)
	d.end(t)
	interop.Judged(t, img)
	interop.Btrlab(t, "get", img+":/vm.raw", filepath.Join(dir, "got"))
	sameFile(t, filepath.Join(dir, "got"), again)
	interop.Mounted(t, img, "ro", func(mnt string) { sameFile(t, filepath.Join(mnt, "vm.raw"), again) })

	t.Run("fio", func(t *testing.T) {
		if !strings.Contains(interop.Sh(t, "fio", "--enghelp"), "nbd") {
			need.Without(t, "fio with nbd")
		}
		for _, policy := range []string{"locked", "unlocked"} {
			d := serveDisk(t, bin, img+":/vm.raw", "--policy", policy)
			interop.Sh(t, "fio", "--name=j", "--ioengine=nbd", "--uri="+d.uri, "--rw=randrw", "--bsrange=512-64k", "--iodepth=16", "--size=16m",
				"--offset=64m", "--verify=crc32c", "--verify_state_save=0", "--fsync=32", "--output="+filepath.Join(dir, "fio"))
			d.end(t)
			interop.Judged(t, img)
		}
	})

	t.Run("image", func(t *testing.T) { // the disk is the image itself, and qemu-img copies it
		d := serveDisk(t, bin, img, "--ro")
		if out := interop.Sh(t, "nbdinfo", d.uri); !strings.Contains(out, "is_read_only: true") {
			t.Errorf("nbdinfo: %s", out)
		}
		interop.Sh(t, "nbdcopy", d.uri, back+".img")
		d.end(t)
		sameFile(t, back+".img", img)
		d = serveDisk(t, bin, back+".img")
		interop.Sh(t, "nbdcopy", "--flush", img, d.uri)
		d.end(t)
		interop.Judged(t, back+".img")
	})
}

// TestServeKilled: what a client has flushed is there after a kill -9, by the log.
func TestServeKilled(t *testing.T) {
	interop.Linux(t, "nbdcopy")
	bin := interop.Binary(t)
	img := interop.Image(t, "killed.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "512M", img)
	interop.Btrlab(t, "touch", img+":/vm.raw")
	interop.Btrlab(t, "truncate", "--size", "8M", img+":/vm.raw")
	raw := filepath.Join(filepath.Dir(img), "raw")
	interop.Must(t, os.WriteFile(raw, interop.NewFiller(7).Bytes(8<<20), 0o644))
	d := serveDisk(t, bin, img+":/vm.raw", "--commit", "0")
	interop.Sh(t, "nbdcopy", "--flush", raw, d.uri)
	interop.Must(t, d.cmd.Process.Kill())
	_ = d.cmd.Wait() // killed
	interop.Mounted(t, img, "", func(mnt string) { sameFile(t, filepath.Join(mnt, "vm.raw"), raw) })
	interop.Judged(t, img)

	// The socket of the killed one is there, and a server takes it over; two cannot have the image.
	d2 := serveDisk(t, bin, img+":/vm.raw")
	out, err := exec.Command(bin, "serve", "--nbd", "unix:"+filepath.Join(t.TempDir(), "t"), img).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "in use") || bytes.Count(out, []byte("\n")) != 1 {
		t.Errorf("a second server of the image: %v, %q", err, out)
	}
	sock := strings.TrimPrefix(d2.uri, "nbd+unix:///?socket=")
	other := interop.Image(t, "other.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "256M", other)
	out, err = exec.Command(bin, "serve", "--nbd", "unix:"+sock, other).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another server has the socket") {
		t.Errorf("a second server at the socket: %v, %q", err, out)
	}
	interop.Must(t, d2.cmd.Process.Kill())
	_ = d2.cmd.Wait() // killed
	cmd := exec.Command(bin, "serve", "--nbd", "unix:"+sock, other)
	pipe, err := cmd.StdoutPipe()
	interop.Must(t, err)
	interop.Must(t, cmd.Start())
	if p, err := io.ReadAll(io.LimitReader(pipe, 1)); len(p) == 0 {
		t.Errorf("the socket of a server that was killed is not taken over: %v", err)
	}
	interop.Must(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Error(fmt.Errorf("after ^C: %w", err))
	}
}
