// Package fstest makes file systems for tests: a memory device, mkfs, open; and when the test ends,
// close with every counter at rest and a clean check. Nobody needs to remember to check the image.
package fstest

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/policy"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// DefaultSize is the size of a fixture's device in bytes.
const DefaultSize = 256 << 20

// Epoch is the time that fixtures give to inodes, one second later for each time stamp.
var Epoch = time.Date(2018, 5, 16, 3, 52, 0, 0, time.UTC)

// Fixture is an open file system of a test.
type Fixture struct {
	testing.TB
	T   *sched.Task
	Dev blockdev.Device // what the file system is open on
	FS  *fs.FS
	// More are the other devices of a file system on several.
	More []blockdev.Device

	cfg    config
	closed bool
}

type config struct {
	size    int64
	mkfs    mkfs.Options
	fs      fs.Options
	devices int // besides the first
	image   string
	wrap    func(blockdev.Device) blockdev.Device
	noCheck bool
}

// Option changes what New makes.
type Option func(*config)

// Devices makes a file system on n devices of the same size.
func Devices(n int) Option { return func(c *config) { c.devices = n - 1 } }

// Size makes the device of n bytes.
func Size(n int64) Option { return func(c *config) { c.size = n } }

// Policy opens with a locking policy, by its specification.
func Policy(spec string) Option { return func(c *config) { c.fs.Policy = policy.MustParse(spec) } }

// FSOptions lets f change the options of Open.
func FSOptions(f func(o *fs.Options)) Option { return func(c *config) { f(&c.fs) } }

// MkfsOptions lets f change the options of mkfs.
func MkfsOptions(f func(o *mkfs.Options)) Option { return func(c *config) { f(&c.mkfs) } }

// Image opens a copy of the image in the file path, one made by Linux for example, instead of a new
// one. A file named *.blocks.gz has only the blocks that are not zero, as gzip of records (offset,
// 4096 bytes) and the size at the end.
func Image(path string) Option { return func(c *config) { c.image = path } }

// Wrap puts a device model between the file system and the memory device.
func Wrap(f func(blockdev.Device) blockdev.Device) Option { return func(c *config) { c.wrap = f } }

// Faults puts a device in between that counts transfers and can be told to fail; dev is it, once
// New has returned.
func Faults(dev **dm.Flakey) Option {
	return Wrap(func(d blockdev.Device) blockdev.Device {
		*dev = dm.NewFlakey(d)
		return *dev
	})
}

// NoCheck leaves out the checks at the end: the test breaks the image on purpose.
func NoCheck() Option { return func(c *config) { c.noCheck = true } }

// New makes a file system and closes and checks it when the test ends.
func New(tb testing.TB, opts ...Option) *Fixture {
	tb.Helper()
	stamp := Epoch
	cfg := config{size: DefaultSize}
	cfg.mkfs.Now = Epoch
	cfg.mkfs.FSID = format.UUID{0: 0xf5, 15: 1}
	cfg.mkfs.DevUUID = format.UUID{0: 0xde, 15: 2}
	cfg.mkfs.ChunkTreeUUID = format.UUID{0: 0xc4, 15: 3}
	cfg.mkfs.SubvolUUID = format.UUID{0: 0x50, 15: 4}
	cfg.fs.CheckQuiescence = true
	cfg.fs.Now = func() time.Time { return stamp }
	for _, o := range opts {
		o(&cfg)
	}
	x := &Fixture{TB: tb, T: sched.NewTask(tb.Name()), cfg: cfg}
	if cfg.image == "" {
		x.Dev = blockdev.NewMemory(cfg.size)
		for range cfg.devices {
			x.More = append(x.More, blockdev.NewMemory(cfg.size))
		}
		cfg.mkfs.Devices = x.More
		if err := mkfs.Make(x.T, x.Dev, cfg.mkfs); err != nil {
			tb.Fatalf("mkfs: %v", err)
		}
	} else {
		x.Dev = Load(tb, x.T, cfg.image)
	}
	if cfg.wrap != nil {
		x.Dev = cfg.wrap(x.Dev)
	}
	x.open()
	tb.Cleanup(x.Close)
	return x
}

// Load copies an image file (Image) into a memory device, leaving its holes out.
func Load(tb testing.TB, t *sched.Task, path string) blockdev.Device {
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if strings.HasSuffix(path, ".blocks.gz") {
		return loadBlocks(tb, t, f)
	}
	st, err := f.Stat()
	if err != nil {
		tb.Fatal(err)
	}
	dev := blockdev.NewMemory(st.Size())
	buf := make([]byte, 64<<10)
	zero := make([]byte, len(buf))
	for off := int64(0); off < st.Size(); off += int64(len(buf)) {
		n, err := f.ReadAt(buf, off)
		if err != nil && !errors.Is(err, io.EOF) {
			tb.Fatal(err)
		}
		if string(buf[:n]) == string(zero[:n]) {
			continue
		}
		if err := blockdev.Write(t, dev, buf[:n], off); err != nil {
			tb.Fatal(err)
		}
	}
	return dev
}

// loadBlocks makes a memory device of the records of a *.blocks.gz file.
func loadBlocks(tb testing.TB, t *sched.Task, f io.Reader) blockdev.Device {
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	all, err := io.ReadAll(z)
	if err != nil {
		tb.Fatal(err)
	}
	const block, word = 4096, 8
	end := len(all) - word
	dev := blockdev.NewMemory(int64(binary.LittleEndian.Uint64(all[end:])))
	for rest := all[:end]; len(rest) > 0; rest = rest[word+block:] {
		if err := blockdev.Write(t, dev, rest[word:word+block], int64(binary.LittleEndian.Uint64(rest))); err != nil {
			tb.Fatal(err)
		}
	}
	return dev
}

func (x *Fixture) open() {
	x.Helper()
	f, err := fs.Open(x.T, append([]blockdev.Device{x.Dev}, x.More...), x.cfg.fs)
	if err != nil {
		x.Fatalf("open: %v", err)
	}
	x.FS, x.closed = f, false
}

// Reopen closes, checks and opens again, with other options if some are given.
func (x *Fixture) Reopen(opts ...Option) {
	x.Helper()
	for _, o := range opts {
		o(&x.cfg)
	}
	x.Close()
	x.open()
}

// Close closes the file system and checks the image. It is called by itself when the test ends.
func (x *Fixture) Close() {
	x.Helper()
	if x.closed {
		return
	}
	x.closed = true
	if x.Failed() && x.cfg.noCheck {
		return
	}
	lockdep.AssertNone(x.T)
	if err := x.FS.Close(x.T); err != nil && !x.cfg.noCheck {
		x.Errorf("close: %v", err)
	}
	if !x.cfg.noCheck {
		x.Check(x.Dev)
	}
}

// Check checks the image on dev and fails the test with its findings.
func (x *Fixture) Check(dev blockdev.Device) {
	x.Helper()
	if msg := Findings(x.T, dev, x.More...); msg != "" {
		x.Errorf("check:\n%s", msg)
	}
}

// Findings lists check's findings about the image on dev and the other devices of its file system;
// it is empty when that is clean.
func Findings(t *sched.Task, dev blockdev.Device, more ...blockdev.Device) string {
	r, err := check.Check(t, dev, check.Options{Devices: more})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for i, f := range r.Findings {
		if i == 20 {
			fmt.Fprintf(&b, "... %d findings\n", len(r.Findings))
			break
		}
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// Create makes a file and fails the test if it cannot.
func (x *Fixture) Create(path string) *fs.File {
	x.Helper()
	f, err := x.FS.Create(x.T, path, 0o644)
	if err != nil {
		x.Fatalf("create %s: %v", path, err)
	}
	return f
}

// Open opens a file for reading and writing.
func (x *Fixture) Open(path string) *fs.File {
	x.Helper()
	f, err := x.FS.OpenFile(x.T, path, fs.O_RDWR, 0)
	if err != nil {
		x.Fatalf("open %s: %v", path, err)
	}
	return f
}

// WriteAt writes all of p.
func (x *Fixture) WriteAt(f *fs.File, p []byte, off int64) {
	x.Helper()
	if n, err := f.WriteAt(x.T, p, off); err != nil || n != len(p) {
		x.Fatalf("write of %d bytes at %d: %d, %v", len(p), off, n, err)
	}
}

// ReadFile reads a whole file.
func (x *Fixture) ReadFile(path string) []byte {
	x.Helper()
	f, err := x.FS.OpenFile(x.T, path, fs.O_RDONLY, 0)
	if err != nil {
		x.Fatalf("open %s: %v", path, err)
	}
	defer f.Close(x.T)
	p := make([]byte, f.Size(x.T))
	if n, err := f.ReadAt(x.T, p, 0); n != len(p) || err != nil && !errors.Is(err, io.EOF) {
		x.Fatalf("read of %d bytes of %s: %d, %v", len(p), path, n, err)
	}
	return p
}

// Must fails the test on an error.
func (x *Fixture) Must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}
