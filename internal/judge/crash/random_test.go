package crash_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	gopath "path"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/judge/crash"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

var (
	randomSeed  = flag.Uint64("random.seed", 0, "first seed of TestRandom")
	randomSeeds = flag.Uint64("random.seeds", 12, "how many workloads TestRandom makes")
	randomOps   = flag.Int("random.ops", 40, "operations of a workload of TestRandom")
)

// TestRandom: workloads of all that changes files and names, with what an inode cache of four
// inodes forgets in between, and fsyncs of anything. After each promise the power goes, and at some
// flushes with a part of the writes.
func TestRandom(t *testing.T) {
	seeds := *randomSeeds
	if testing.Short() {
		seeds = min(seeds, 4)
	}
	for seed := *randomSeed; seed < *randomSeed+seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { random(t, seed, *randomOps) })
	}
}

// chaos is one random workload.
type chaos struct {
	tb    testing.TB
	t     *sched.Task
	r     *crash.Recorder
	rng   *rand.Rand
	held  []*fs.File // open, some without a name
	names []string   // by held
	log   []string
	dirs  []string // all there are
	files []string // regular
	other []string // symbolic links
	fill  byte
}

func random(t *testing.T, seed uint64, ops int) {
	rng := rand.New(rand.NewPCG(seed, 11))
	names := append(policy.Names(), policy.FsyncNames()...)
	o := fs.Options{Policy: policy.MustParse(names[rng.IntN(len(names))]), FirstFit: rng.IntN(2) == 0, CheckQuiescence: true}
	if rng.IntN(2) == 0 {
		o.CacheInodes, o.CacheBlocks, o.Memory = 4, 16, 8<<20
	}
	tk := sched.NewTask(t.Name())
	r, err := crash.NewRecorder(tk, []blockdev.Device{image(t, tk)}, crash.Options{FS: o})
	if err != nil {
		t.Fatal(err)
	}
	c := &chaos{tb: t, t: tk, r: r, rng: rng}
	defer func() {
		if t.Failed() {
			t.Logf("-random.seed=%d, policy %s\n%s", seed, o.Policy.Name, strings.Join(c.log, "\n"))
		}
	}()
	c.look()
	if rng.IntN(3) == 0 {
		c.do(crash.Op{Text: "quota enable"}, func() error { return r.FS.EnableQuota(tk) })
		if rng.IntN(2) == 0 {
			limit := uint64(1+rng.IntN(20)) << 18
			c.do(crash.Op{Text: fmt.Sprintf("quota limit 5 %d", limit)}, func() error { return r.FS.LimitQuota(tk, 5, limit, false, false) })
		}
	}
	if rng.IntN(5) == 0 {
		c.fillUp()
	}
	for i := range 4 {
		c.create(fmt.Sprint("/", i), 60000)
	}
	for range ops {
		c.look()
		c.step()
	}
	for len(c.held) > 0 {
		c.letGo(0)
	}
	c.do(crash.Op{Text: "sync", Promise: crash.All}, func() error { return r.FS.Sync(tk) })
	r.FS.CheckQuiescent(tk)
	rec, err := r.End(tk)
	if err != nil {
		t.Fatal(err)
	}
	states := append(rec.States(crash.Choice{Points: true}), rec.States(crash.Choice{PerFlush: 3, Seed: seed})...)
	x, n, err := rec.Search(tk, states, 1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if x != nil {
		t.Errorf("state %s: %s\n%s", x.State, x.Loss, strings.Join(rec.Timeline(x.State), "\n"))
	}
	t.Logf("%d states", n)
}

// look finds what there is.
func (c *chaos) look() {
	c.dirs, c.files, c.other = c.dirs[:0], c.files[:0], c.other[:0]
	c.walk("/")
}

func (c *chaos) walk(dir string) {
	c.dirs = append(c.dirs, dir)
	list, err := c.r.FS.ReadDir(c.t, dir)
	if err != nil {
		c.tb.Fatal(err)
	}
	for _, e := range list {
		switch p := gopath.Join(dir, e.Name); e.Type {
		case format.FtDir:
			if at, err := c.r.FS.Lstat(c.t, p); err == nil && at.IsDir() {
				c.walk(p)
			}
		case format.FtRegFile:
			c.files = append(c.files, p)
		default:
			c.other = append(c.other, p)
		}
	}
}

func (c *chaos) one(l []string) string {
	if len(l) == 0 {
		return "/none"
	}
	return l[c.rng.IntN(len(l))]
}

// free is a name that may be there.
func (c *chaos) free() string { return gopath.Join(c.one(c.dirs), string("abcdef"[c.rng.IntN(6)])) }

// do runs an operation. What the file system refuses is an operation, too.
func (c *chaos) do(op crash.Op, do func() error) bool {
	c.tb.Helper()
	err := c.r.Do(c.t, op, do)
	text := op.Text
	if err != nil {
		text += ": " + err.Error()
	}
	c.log = append(c.log, text)
	var no errno.Errno
	if err != nil && (!errors.As(err, &no) || no == errno.EIO || no == errno.EUCLEAN || strings.HasPrefix(err.Error(), "read the tree")) {
		c.tb.Fatal(text)
	}
	if no == errno.EROFS { // below a read-only snapshot, or of a file system that has given up
		c.do(crash.Op{Text: "chmod 755 /"}, func() error {
			if err := c.r.FS.Chmod(c.t, "/", 0o755); err != nil {
				c.tb.Fatal(err)
			}
			return nil
		})
	}
	return err == nil
}

// edit opens a file, or takes one that is open, and runs do.
func (c *chaos) edit(text string, do func(x *fs.File) error) {
	if n := len(c.held); n > 0 && c.rng.IntN(3) == 0 {
		i := c.rng.IntN(n)
		c.do(crash.Op{Text: text + " (open) " + c.names[i]}, func() error { return do(c.held[i]) })
		return
	}
	path := c.one(c.files)
	c.do(crash.Op{Text: text + " " + path}, func() error {
		x, err := c.r.FS.OpenFile(c.t, path, fs.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(do(x), x.Close(c.t))
	})
}

func (c *chaos) letGo(i int) {
	c.do(crash.Op{Text: "close " + c.names[i]}, func() error { return c.held[i].Close(c.t) })
	c.held = append(c.held[:i], c.held[i+1:]...)
	c.names = append(c.names[:i], c.names[i+1:]...)
}

// bytes are n that tell one write from another.
func (c *chaos) bytes(n int64) []byte {
	c.fill++
	return []byte(strings.Repeat(string('a'+rune(c.fill%26)), int(n)))
}

// span is a range of a file, often at a block's edge.
func (c *chaos) span() (off, n int64) {
	off, n = int64(c.rng.IntN(160<<10)), 1+int64(c.rng.IntN([]int{100, 5000, 70000}[c.rng.IntN(3)]))
	switch c.rng.IntN(3) {
	case 0:
		off, n = off&^4095, (n+4095)&^4095
	case 1:
		off &= 8191
	}
	return off, n
}

// create writes n bytes to a file, which it makes if need be.
func (c *chaos) create(path string, n int64) {
	nocow := c.rng.IntN(4) == 0
	c.do(crash.Op{Text: fmt.Sprintf("write --length %d %s, nocow=%v", n, path, nocow), Steps: nocow}, func() error {
		x, err := c.r.FS.OpenFile(c.t, path, fs.O_RDWR|fs.O_CREAT, 0o644)
		if err != nil {
			return err
		}
		if nocow {
			_ = x.SetFlags(c.t, format.InodeNoDataCow) // EINVAL when it has data
		}
		_, err = x.WriteAt(c.t, c.bytes(n), 0)
		return errors.Join(err, x.Close(c.t))
	})
}

// fillUp leaves the image with little room.
func (c *chaos) fillUp() {
	c.create("/big", 0)
	for at, n := int64(0), int64(64<<20); n >= 256<<10; {
		if c.do(crash.Op{Text: fmt.Sprintf("fallocate --keep-size --offset %d --length %d /big", at, n)}, func() error {
			x, err := c.r.FS.OpenFile(c.t, "/big", fs.O_RDWR, 0)
			if err != nil {
				return err
			}
			return errors.Join(x.Fallocate(c.t, fs.FALLOC_FL_KEEP_SIZE, at, n), x.Close(c.t))
		}) {
			at += n
		} else {
			n /= 2
		}
	}
}

func (c *chaos) step() {
	f := c.r.FS
	off, n := c.span()
	path, file, dir := c.free(), c.one(c.files), c.one(c.dirs)
	op := func(format string, a ...any) crash.Op { return crash.Op{Text: fmt.Sprintf(format, a...)} }
	switch k := c.rng.IntN(130); {
	case k < 10:
		c.create(path, n)
	case k < 24:
		c.edit(fmt.Sprintf("write --offset %d --length %d", off, n), func(x *fs.File) error {
			_, err := x.WriteAt(c.t, c.bytes(n), off)
			return err
		})
	case k < 31:
		off, n = off&^4095, (n+4095)&^4095
		c.edit(fmt.Sprintf("write --direct --offset %d --length %d", off, n), func(x *fs.File) error {
			_, err := x.WriteDirect(c.t, c.bytes(n), off)
			return err
		})
	case k < 36:
		c.edit(fmt.Sprintf("write --append --length %d", n), func(x *fs.File) error {
			_, err := x.WriteAt(c.t, c.bytes(n), x.Size(c.t))
			return err
		})
	case k < 41:
		c.edit(fmt.Sprintf("truncate --size %d", off), func(x *fs.File) error { return x.Truncate(c.t, off) })
	case k < 50:
		mode := []uint32{0, fs.FALLOC_FL_KEEP_SIZE, fs.FALLOC_FL_PUNCH_HOLE | fs.FALLOC_FL_KEEP_SIZE, fs.FALLOC_FL_ZERO_RANGE, fs.FALLOC_FL_ZERO_RANGE | fs.FALLOC_FL_KEEP_SIZE}[c.rng.IntN(5)]
		c.edit(fmt.Sprintf("fallocate mode %d --offset %d --length %d", mode, off, n), func(x *fs.File) error { return x.Fallocate(c.t, mode, off, n) })
	case k < 55:
		from, to := int64(c.rng.IntN(20))<<12, int64(c.rng.IntN(20))<<12
		n = (n + 4095) &^ 4095
		if c.rng.IntN(2) == 0 {
			from, to, n = 0, 0, 0
		}
		c.edit(fmt.Sprintf("reflink %s --offset %d --length %d --to %d", file, from, n, to), func(x *fs.File) error {
			src, err := f.OpenFile(c.t, file, fs.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return errors.Join(x.Reflink(c.t, src, from, n, to), src.Close(c.t))
		})
	case k < 60:
		c.do(op("ln %s %s", file, path), func() error { return f.Link(c.t, file, path) })
	case k < 67:
		if c.rng.IntN(3) == 0 {
			path = c.one(c.files)
		}
		c.do(op("mv %s %s", file, path), func() error { return f.Rename(c.t, file, path) })
	case k < 69:
		c.do(op("mv %s %s", dir, path), func() error { return f.Rename(c.t, dir, path) })
	case k < 73:
		c.do(op("rm %s", file), func() error { return f.Unlink(c.t, file) })
	case k < 74:
		c.do(op("rmdir %s", dir), func() error { return f.Rmdir(c.t, dir) })
	case k < 78:
		c.do(op("mkdir %s", path), func() error { return f.Mkdir(c.t, path, 0o755) })
	case k < 79:
		c.do(op("ln -s %s %s", file, path), func() error { return f.Symlink(c.t, file, path) })
	case k < 84:
		name := "user." + string("ab"[c.rng.IntN(2)])
		what := c.one([]string{file, dir, c.one(c.other)})
		if c.rng.IntN(3) == 0 {
			c.do(op("removexattr %s %s", name, what), func() error { return f.Removexattr(c.t, what, name) })
		} else {
			v := c.bytes(1 + n%3000)
			c.do(op("setxattr %s %d %s", name, len(v), what), func() error { return f.Setxattr(c.t, what, name, v) })
		}
	case k < 85:
		c.do(op("chmod %s", file), func() error { return f.Chmod(c.t, file, 0o600+uint32(c.rng.IntN(64))) })
	case k < 86:
		c.do(op("subvolume create %s", path), func() error { return f.Subvolume(c.t, path, 0o755) })
	case k < 88:
		ro := c.rng.IntN(3) == 0
		c.do(op("snapshot -r=%v %s %s", ro, dir, path), func() error { return f.Snapshot(c.t, dir, path, ro) })
	case k < 89:
		c.do(op("subvolume delete %s", dir), func() error { return f.DeleteSubvolume(c.t, dir) })
	case k < 91:
		c.do(op("drop-caches"), func() error { f.DropCaches(c.t); return nil })
	case k < 94:
		c.do(op("flush %s", file), func() error {
			x, err := f.OpenFile(c.t, file, fs.O_RDWR, 0)
			if err != nil {
				return err
			}
			return errors.Join(f.Flush(c.t, x), x.Close(c.t))
		})
	case k < 98:
		if len(c.held) > 3 {
			c.letGo(c.rng.IntN(len(c.held)))
			return
		}
		c.do(op("open %s", file), func() error {
			x, err := f.OpenFile(c.t, file, fs.O_RDWR, 0)
			if err == nil {
				c.held, c.names = append(c.held, x), append(c.names, file)
			}
			return err
		})
	case k < 101:
		if n := len(c.held); n > 0 {
			i := c.rng.IntN(n)
			c.do(op("fsync (open) %s", c.names[i]), func() error { return c.held[i].Fsync(c.t) })
		}
	case k < 104:
		c.do(crash.Op{Text: "sync", Promise: crash.All}, func() error { return f.Sync(c.t) })
	case k < 114:
		c.attrs(c.one([]string{file, file, dir, c.one(c.other)}))
	default:
		what := file
		if c.rng.IntN(3) == 0 {
			what = dir
		}
		verb := c.one([]string{"fsync", "fsync", "fsync", "fdatasync"})
		c.do(crash.Op{Text: verb + " " + what, Promise: crash.PromiseOf(verb), Path: what}, func() error { return f.Fsync(c.t, what) })
	}
}

// attrs changes one of the attributes that an inode has beside its bytes and names.
func (c *chaos) attrs(what string) {
	f := c.r.FS
	x := uint32(c.rng.IntN(3000))
	op := func(format string, a ...any) crash.Op { return crash.Op{Text: fmt.Sprintf(format, a...)} }
	switch c.rng.IntN(4) {
	case 0:
		c.do(op("chmod %o %s", x, what), func() error { return f.Chmod(c.t, what, x) })
	case 1:
		c.do(op("chown %d:%d %s", x, x+1, what), func() error { return f.Chown(c.t, what, x, x+1) })
	case 2:
		at := time.Unix(int64(x)*1000, int64(x))
		c.do(op("touch --time %s %s", at.UTC(), what), func() error { return f.Utimes(c.t, what, at, at.Add(time.Second)) })
	default:
		c.do(op("chattr %s", what), func() error {
			at, err := f.Stat(c.t, what)
			if err != nil {
				return err
			}
			x := c.rng.Uint64() & (format.InodeNoDump | format.InodeNoAtime | format.InodeSync)
			return f.SetFlags(c.t, what, at.Flags&format.InodeNoDataCow|x)
		})
	}
}
