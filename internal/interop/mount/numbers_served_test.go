package mount

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
	ours "btrlab/internal/mount"
	"btrlab/internal/mount/ring"
	"btrlab/internal/nbd"
	"btrlab/internal/sched"
)

// emptyFS answers every request of a mount at once and keeps nothing: a root with files that
// take all that is written and read as zeros. What it costs is what FUSE costs.
type emptyFS struct {
	gofuse.RawFileSystem
	last atomic.Uint64
	init func(k *gofuse.Server)
}

func (e *emptyFS) Init(k *gofuse.Server) {
	if e.init != nil {
		e.init(k)
	}
}

const emptySize = 256 << 20

func (e *emptyFS) attr(id uint64, a *gofuse.Attr) {
	*a = gofuse.Attr{Ino: id, Size: emptySize, Mode: syscall.S_IFREG | 0o666, Nlink: 1, Blksize: 4096}
	if id == gofuse.FUSE_ROOT_ID {
		*a = gofuse.Attr{Ino: id, Mode: syscall.S_IFDIR | 0o777, Nlink: 2, Blksize: 4096}
	}
}

func (e *emptyFS) entry(out *gofuse.EntryOut) {
	out.NodeId, out.Generation = e.last.Add(1)+1, 1
	out.SetEntryTimeout(time.Hour)
	out.SetAttrTimeout(time.Second)
	e.attr(out.NodeId, &out.Attr)
}

func (e *emptyFS) Lookup(_ <-chan struct{}, _ *gofuse.InHeader, name string, out *gofuse.EntryOut) gofuse.Status {
	if name != "f" {
		return gofuse.ENOENT
	}
	e.entry(out)
	return gofuse.OK
}

func (e *emptyFS) GetAttr(_ <-chan struct{}, in *gofuse.GetAttrIn, out *gofuse.AttrOut) gofuse.Status {
	out.SetTimeout(time.Second)
	e.attr(in.NodeId, &out.Attr)
	return gofuse.OK
}

func (e *emptyFS) SetAttr(_ <-chan struct{}, in *gofuse.SetAttrIn, out *gofuse.AttrOut) gofuse.Status {
	out.SetTimeout(time.Second)
	e.attr(in.NodeId, &out.Attr)
	return gofuse.OK
}

func (e *emptyFS) Open(_ <-chan struct{}, _ *gofuse.OpenIn, out *gofuse.OpenOut) gofuse.Status {
	out.OpenFlags = gofuse.FOPEN_DIRECT_IO | gofuse.FOPEN_PARALLEL_DIRECT_WRITES
	return gofuse.OK
}

func (e *emptyFS) Create(_ <-chan struct{}, _ *gofuse.CreateIn, _ string, out *gofuse.CreateOut) gofuse.Status {
	e.entry(&out.EntryOut)
	out.OpenFlags = gofuse.FOPEN_DIRECT_IO | gofuse.FOPEN_PARALLEL_DIRECT_WRITES
	return gofuse.OK
}

func (e *emptyFS) Unlink(<-chan struct{}, *gofuse.InHeader, string) gofuse.Status { return gofuse.OK }

func (e *emptyFS) Read(_ <-chan struct{}, _ *gofuse.ReadIn, buf []byte) (gofuse.ReadResult, gofuse.Status) {
	return gofuse.ReadResultData(buf), gofuse.OK
}

func (e *emptyFS) Write(_ <-chan struct{}, _ *gofuse.WriteIn, data []byte) (uint32, gofuse.Status) {
	return uint32(len(data)), gofuse.OK
}

func (e *emptyFS) Flush(<-chan struct{}, *gofuse.FlushIn) gofuse.Status { return gofuse.OK }
func (e *emptyFS) Fsync(<-chan struct{}, *gofuse.FsyncIn) gofuse.Status { return gofuse.OK }
func (e *emptyFS) Release(<-chan struct{}, *gofuse.ReleaseIn)           {}
func (e *emptyFS) Forget(uint64, uint64)                                {}

// emptyMount mounts an emptyFS with the options of internal/mount, by io_uring or not.
func emptyMount(t *testing.T, byRing bool) string {
	t.Helper()
	dir := t.TempDir()
	e := &emptyFS{RawFileSystem: gofuse.NewDefaultRawFileSystem()}
	o := &gofuse.MountOptions{Name: "empty", AllowOther: true, MaxWrite: 1 << 20, MaxBackground: 64,
		ExplicitDataCacheControl: true, DisableSplice: true, DirectMountStrict: true, Options: []string{"default_permissions"},
		ExtraCapabilities: gofuse.CAP_DIRECT_IO_ALLOW_MMAP | gofuse.CAP_ASYNC_DIO | gofuse.CAP_HANDLE_KILLPRIV_V2}
	if byRing {
		r, err := ring.Open(o.MaxWrite)
		interop.Must(t, err)
		r.Failed = func(err error) { t.Error(err) }
		o.ExtraCapabilities |= gofuse.CAP_OVER_IO_URING
		e.init = func(k *gofuse.Server) {
			_, minor, err := ours.Device(dir)
			interop.Must(t, err)
			interop.Must(t, r.Serve(e, k, o, minor))
		}
		t.Cleanup(func() {
			r.Wait()
			interop.Must(t, r.Close())
		})
	}
	s, err := gofuse.NewServer(e, dir, o)
	interop.Must(t, err)
	go s.Serve()
	interop.Must(t, s.WaitMount())
	t.Cleanup(func() { interop.Must(t, s.Unmount()) })
	return dir
}

// fioRate runs a job on a file and gives its writes a second.
func fioRate(t *testing.T, flags ...string) float64 {
	t.Helper()
	return interop.FioIOPS(t, interop.Sh(t, "fio", append([]string{"--name=w", "--rw=randwrite", "--bs=4k", "--size=256M", "--norandommap", "--time_based", "--runtime=2",
		"--thread", "--group_reporting", "--output-format=json"}, flags...)...))
}

// TestNumbersMount: what a mount does beside a FUSE server that does nothing, by reads of /dev/fuse
// and by io_uring: 4 KiB direct writes of four jobs to one file, NOCOW and COW, buffered writes of
// 1 MiB, and 10,000 files that are made and removed; and locked beside unlocked with the model of
// seed 002's array.
func TestNumbersMount(t *testing.T) {
	interop.Numbers(t, "fio")
	fuse(t)
	bin := interop.Binary(t)
	img := interop.Image(t, "mount.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "4G", img)
	interop.Btrlab(t, "touch", img+":/f", img+":/c")
	interop.Btrlab(t, "chattr", "+C", img+":/f")
	for _, f := range []string{"f", "c"} { // fio makes a file of another size anew, without +C
		interop.Btrlab(t, "truncate", "--size", "256M", img+":/"+f)
	}
	ways := []string{"no", "yes"} // of --io-uring
	if len(modes(t)) == 2 {
		ways = ways[:1]
	}
	empty := map[string]string{}
	for _, way := range ways {
		empty[way] = emptyMount(t, way == "yes")
	}
	m := serve(t, bin, img)
	for _, f := range []string{"f", "c"} {
		interop.Sh(t, "fio", "--name=w", "--rw=write", "--bs=1M", "--size=256M", "--fallocate=none", "--end_fsync=1", "--filename="+m.path(f))
	}
	m.umount(t)
	direct := []string{"--ioengine=psync", "--direct=1", "--numjobs=4"}
	// fio's own memory is not aligned, and FUSE makes two requests of a write from such memory;
	// that of cp, dd and qemu is.
	large := []string{"--ioengine=psync", "--rw=write", "--bs=1M", "--iomem_align=4k"}
	for _, c := range []struct {
		name, file, unit string
		rate             func(dir, file string) float64
	}{
		{"4 KiB direct random writes, 4 jobs, NOCOW", "f", "/s", fioOn(t, direct)}, {"the same, COW", "c", "/s", fioOn(t, direct)},
		{"buffered 1 MiB writes, NOCOW", "f", "MiB/s", fioOn(t, large)}, {"the same, COW", "c", "MiB/s", fioOn(t, large)},
		{"create and unlink of 10,000 files", "", "files/s", func(dir, _ string) float64 { return createRate(t, dir) }},
	} {
		ours, none := map[string][]float64{}, map[string][]float64{}
		for range interop.Rounds {
			for _, way := range ways {
				m := serve(t, bin, img, "--io-uring", way)
				ours[way] = append(ours[way], c.rate(m.dir, c.file))
				m.umount(t)
				none[way] = append(none[way], c.rate(empty[way], "f"))
			}
		}
		interop.Spread(t, "mount: "+c.name, ours["no"], "empty", none["no"], c.unit)
		if len(ways) == 2 {
			interop.Spread(t, "  by io_uring, beside empty by /dev/fuse", ours["yes"], "empty", none["no"], c.unit)
			interop.Spread(t, "  by io_uring, beside empty by io_uring", ours["yes"], "empty", none["yes"], c.unit)
		}
	}

	rates := map[string][]float64{}
	for range interop.Rounds {
		for _, p := range []string{"locked", "unlocked"} {
			m := serve(t, bin, img, "--policy", p, "--device-model", "ssd-raid5")
			rates[p] = append(rates[p], fioRate(t, "--ioengine=psync", "--numjobs=16", "--filename="+m.path("f"), "--runtime=5"))
			m.umount(t)
		}
	}
	interop.Spread(t, "mount: 4 KiB buffered random writes, 16 jobs, ssd-raid5: unlocked", rates["unlocked"], "locked", rates["locked"], "/s")
}

// fioOn runs a job on a file of a directory.
func fioOn(t *testing.T, flags []string) func(dir, file string) float64 {
	return func(dir, file string) float64 {
		return fioRate(t, append(flags[:len(flags):len(flags)], "--filename="+filepath.Join(dir, file))...)
	}
}

// createRate makes and removes 10,000 files.
func createRate(t *testing.T, dir string) float64 {
	t.Helper()
	const n = 10000
	began := time.Now()
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("n%d", i))
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o644)
		interop.Must(t, err)
		interop.Must(t, unix.Close(fd))
		interop.Must(t, os.Remove(path))
	}
	return n / time.Since(began).Seconds()
}

// zeroDisk takes everything and reads as zeros.
type zeroDisk struct{}

func (zeroDisk) Size() int64                                { return emptySize }
func (zeroDisk) ReadAt(*sched.Task, []byte, int64) error    { return nil }
func (zeroDisk) WriteAt(*sched.Task, []byte, int64) error   { return nil }
func (zeroDisk) Flush(*sched.Task) error                    { return nil }
func (zeroDisk) Trim(*sched.Task, int64, int64) error       { return nil }
func (zeroDisk) Zero(*sched.Task, int64, int64, bool) error { return nil }
func (zeroDisk) Extents(_ *sched.Task, _, n int64, f func(int64, nbd.State) bool) error {
	f(n, 0)
	return nil
}

// TestNumbersServe: random requests of 4 KiB, eight under way, to a served file beside a server of
// the same protocol that keeps nothing; and locked beside unlocked with the model of seed 002's
// array.
func TestNumbersServe(t *testing.T) {
	interop.Numbers(t, "fio")
	bin := interop.Binary(t)
	img := interop.Image(t, "serve.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "2G", img)
	interop.Btrlab(t, "touch", img+":/f", img+":/c")
	interop.Btrlab(t, "chattr", "+C", img+":/f")
	for _, f := range []string{"f", "c"} {
		interop.Btrlab(t, "write", "--length", "256M", img+":/"+f)
	}
	sock := filepath.Join(t.TempDir(), "none")
	l, err := net.Listen("unix", sock)
	interop.Must(t, err)
	s := nbd.New(zeroDisk{}, nbd.Options{Name: "none"})
	go s.Serve(l)
	t.Cleanup(func() { interop.Must(t, s.Shutdown()) })
	job := func(uri, rw string) float64 {
		return fioRate(t, "--ioengine=nbd", "--uri="+uri, "--rw="+rw, "--iodepth=8")
	}
	for _, f := range []string{"f", "c"} {
		d := serveDisk(t, bin, img+":/"+f)
		var ours, none []float64
		for range interop.Rounds {
			ours = append(ours, job(d.uri, "randwrite"))
			none = append(none, job("nbd+unix:///?socket="+sock, "randwrite"))
		}
		interop.Spread(t, "serve: 4 KiB random writes, depth 8, "+map[string]string{"f": "NOCOW", "c": "COW"}[f], ours, "empty", none, "/s")
		d.end(t)
	}
	rates := map[string][]float64{}
	for range interop.Rounds {
		for _, p := range []string{"locked", "unlocked", "prewait", "range-lock"} {
			d := serveDisk(t, bin, img+":/f", "--policy", p, "--device-model", "ssd-raid5")
			rates[p] = append(rates[p], fioRate(t, "--ioengine=nbd", "--uri="+d.uri, "--iodepth=16", "--runtime=5"))
			d.end(t)
		}
	}
	for _, p := range []string{"unlocked", "prewait", "range-lock"} {
		interop.Spread(t, "serve: 4 KiB random writes, depth 16, ssd-raid5: "+p, rates[p], "locked", rates["locked"], "/s")
	}
}
