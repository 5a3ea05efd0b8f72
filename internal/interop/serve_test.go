package interop

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
	must(t, err)
	must(t, d.cmd.Start())
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
	must(t, d.cmd.Process.Signal(syscall.SIGTERM))
	if err := d.cmd.Wait(); err != nil || d.err.Len() > 0 {
		t.Errorf("serve ended with %v\n%s", err, d.err.String())
	}
}

// sameFile wants the two files to be alike byte for byte.
func sameFile(t *testing.T, have, want string) {
	t.Helper()
	a, err := os.ReadFile(have)
	must(t, err)
	b, err := os.ReadFile(want)
	must(t, err)
	if !bytes.Equal(a, b) {
		t.Errorf("%s and %s differ", have, want)
	}
}

// TestServe: qemu-img, libnbd and fio use a file of an image as a disk, and what they wrote is what
// they read, what the file has, and what both checkers find in order.
func TestServe(t *testing.T) {
	linux(t, "qemu-img", "nbdinfo", "nbdcopy", "fio")
	bin := binary(t)
	img := image(t, "serve.img")
	dir := filepath.Dir(img)
	btrlab(t, "mkfs", "-q", "--size", "1G", img)
	btrlab(t, "touch", img+":/vm.raw")
	btrlab(t, "truncate", "--size", "128M", img+":/vm.raw")
	raw, back := filepath.Join(dir, "raw"), filepath.Join(dir, "back")
	f, err := os.Create(raw)
	must(t, err)
	fill := newFiller(20261126)
	for _, at := range []int64{0, 10<<20 + 1, 100 << 20} { // holes between them
		_, err := f.WriteAt(fill.bytes(3<<20+511), at)
		must(t, err)
	}
	must(t, f.Truncate(128<<20))
	must(t, f.Close())

	d := serveDisk(t, bin, img+":/vm.raw")
	info := sh(t, "nbdinfo", d.uri)
	for _, want := range []string{"newstyle-fixed", "structured packets", "export-size: 134217728", "base:allocation", "can_fua: true", "can_multi_conn: true",
		"can_trim: true", "can_zero: true", "is_read_only: false", "block_size_minimum: 1", "block_size_maximum: 33554432"} {
		if !strings.Contains(info, want) {
			t.Errorf("nbdinfo does not say %q:\n%s", want, info)
		}
	}
	if list := sh(t, "nbdinfo", "--list", d.uri); !strings.Contains(list, `export="vm.raw"`) {
		t.Errorf("nbdinfo --list: %s", list)
	}
	sh(t, "nbdcopy", "--flush", raw, d.uri)
	sh(t, "nbdcopy", d.uri, back)
	sameFile(t, back, raw)
	// What is data for the file is data for a client, before anything is committed.
	var runs []struct {
		Offset, Length int64
		Type           int
	}
	must(t, json.Unmarshal([]byte(sh(t, "nbdinfo", "--map", "--json", d.uri)), &runs))
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
	if m := sh(t, "qemu-img", "map", "--output=json", "-f", "raw", d.uri); !strings.Contains(m, `"data": true`) || !strings.Contains(m, `"data": false`) {
		t.Errorf("qemu-img map: %s", m)
	}

	must(t, os.Remove(back))
	sh(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", d.uri, back)
	sh(t, "qemu-img", "compare", "-f", "qcow2", "-F", "raw", back, raw)
	again := filepath.Join(dir, "again")
	must(t, os.WriteFile(again, fill.bytes(40<<20), 0o644))
	must(t, os.Truncate(again, 128<<20))
	sh(t, "qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", again, d.uri)
	d.end(t)
	judged(t, img)
	btrlab(t, "get", img+":/vm.raw", filepath.Join(dir, "got"))
	sameFile(t, filepath.Join(dir, "got"), again)
	mounted(t, img, "ro", func(mnt string) { sameFile(t, filepath.Join(mnt, "vm.raw"), again) })

	t.Run("fio", func(t *testing.T) {
		if !strings.Contains(sh(t, "fio", "--enghelp"), "nbd") {
			need.Without(t, "fio with nbd")
		}
		for _, policy := range []string{"locked", "unlocked"} {
			d := serveDisk(t, bin, img+":/vm.raw", "--policy", policy)
			sh(t, "fio", "--name=j", "--ioengine=nbd", "--uri="+d.uri, "--rw=randrw", "--bsrange=512-64k", "--iodepth=16", "--size=16m",
				"--offset=64m", "--verify=crc32c", "--fsync=32", "--output="+filepath.Join(dir, "fio"))
			d.end(t)
			judged(t, img)
		}
	})

	t.Run("image", func(t *testing.T) { // the disk is the image itself, and qemu-img copies it
		d := serveDisk(t, bin, img, "--ro")
		if out := sh(t, "nbdinfo", d.uri); !strings.Contains(out, "is_read_only: true") {
			t.Errorf("nbdinfo: %s", out)
		}
		sh(t, "nbdcopy", d.uri, back+".img")
		d.end(t)
		sameFile(t, back+".img", img)
		d = serveDisk(t, bin, back+".img")
		sh(t, "nbdcopy", "--flush", img, d.uri)
		d.end(t)
		judged(t, back+".img")
	})
}

// TestServeKilled: what a client has flushed is there after a kill -9, by the log.
func TestServeKilled(t *testing.T) {
	linux(t, "nbdcopy")
	bin := binary(t)
	img := image(t, "killed.img")
	btrlab(t, "mkfs", "-q", "--size", "512M", img)
	btrlab(t, "touch", img+":/vm.raw")
	btrlab(t, "truncate", "--size", "8M", img+":/vm.raw")
	raw := filepath.Join(filepath.Dir(img), "raw")
	must(t, os.WriteFile(raw, newFiller(7).bytes(8<<20), 0o644))
	d := serveDisk(t, bin, img+":/vm.raw", "--commit", "0")
	sh(t, "nbdcopy", "--flush", raw, d.uri)
	must(t, d.cmd.Process.Kill())
	_ = d.cmd.Wait() // killed
	mounted(t, img, "", func(mnt string) { sameFile(t, filepath.Join(mnt, "vm.raw"), raw) })
	judged(t, img)

	// The socket of the killed one is there, and a server takes it over; two cannot have the image.
	d2 := serveDisk(t, bin, img+":/vm.raw")
	out, err := exec.Command(bin, "serve", "--nbd", "unix:"+filepath.Join(t.TempDir(), "t"), img).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "in use") || bytes.Count(out, []byte("\n")) != 1 {
		t.Errorf("a second server of the image: %v, %q", err, out)
	}
	sock := strings.TrimPrefix(d2.uri, "nbd+unix:///?socket=")
	other := image(t, "other.img")
	btrlab(t, "mkfs", "-q", "--size", "256M", other)
	out, err = exec.Command(bin, "serve", "--nbd", "unix:"+sock, other).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another server has the socket") {
		t.Errorf("a second server at the socket: %v, %q", err, out)
	}
	must(t, d2.cmd.Process.Kill())
	_ = d2.cmd.Wait() // killed
	cmd := exec.Command(bin, "serve", "--nbd", "unix:"+sock, other)
	pipe, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if p, err := io.ReadAll(io.LimitReader(pipe, 1)); len(p) == 0 {
		t.Errorf("the socket of a server that was killed is not taken over: %v", err)
	}
	must(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Error(fmt.Errorf("after ^C: %w", err))
	}
}
