package fs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/kiocb"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// testdata/compressed.blocks.gz is an image that Linux 6.18 wrote compressed files into, with two
// copies of all data, and compressed.sums is what sha256sum says of them:
//
//	text() { seq -f "line %.0f of a file that is compressed" $1 $(($1+20000)) | head -c $2; }
//	truncate -s 256M i; mkfs.btrfs -d dup i
//	for a in zlib lzo zstd; do
//		mount -o loop,compress-force=$a i m; mkdir m/$a; cd m/$a
//		text 1 200001 >seq; text 1 1000 >inline; text 9 7000 >small; sync -f .
//		for f in clone part hole cut; do cp --reflink=always seq $f; done
//		text 900 12288 | dd of=part bs=4096 seek=10 iflag=fullblock conv=notrunc
//		fallocate -p -o 20480 -l 16384 hole; truncate -s 300000 hole; truncate -s 100001 cut
//		xfs_io -fc "reflink seq 40960 8192 65536" range
//		cd -; umount m
//	done
//	mount -o loop i m; btrfs subvolume snapshot m m/snap
//	for a in zlib lzo zstd; do text 777 4096 | dd of=m/$a/seq bs=4096 seek=1 iflag=fullblock conv=notrunc; done
//	(cd m; find . -type f | sort | xargs sha256sum) >compressed.sums; umount m

const compressedImage = "testdata/compressed.blocks.gz"

// kinds are the directories of the image.
var kinds = []string{"zlib", "lzo", "zstd"}

// linuxSums are the lines of compressed.sums, by path.
func linuxSums(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/compressed.sums")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		sum, path, _ := strings.Cut(strings.TrimSpace(line), "  .")
		all[path] = sum
	}
	return all
}

// TestCompressed reads what Linux compressed: whole files, parts in any order, and directly.
func TestCompressed(t *testing.T) {
	need.LongRaced(t)
	x := fstest.New(t, fstest.Image(compressedImage))
	r := rand.New(rand.NewPCG(1, 2))
	for path, want := range linuxSums(t) {
		data := x.ReadFile(path)
		if have := fmt.Sprintf("%x", sha256.Sum256(data)); have != want {
			t.Errorf("%s: %d bytes with sum %s want %s", path, len(data), have, want)
		}
		f := x.Open(path)
		for i := range 40 {
			x.FS.DropCaches(x.T)
			off := r.IntN(len(data))
			n := min(1+r.IntN(40000), len(data)-off)
			rq := kiocb.Request{Pos: uint64(off)}
			if i%2 == 1 {
				off, n, rq = off&^4095, (n+4095)&^4095, kiocb.Request{Pos: uint64(off) &^ 4095, Flags: kiocb.Direct}
			}
			p := make([]byte, n)
			got, err := f.ReadIter(x.T, rq, p)
			if want := data[off:min(off+n, len(data))]; err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(p[:got], want) {
				t.Fatalf("%s: %d bytes at %d, flags %v: %d, %v", path, n, off, rq.Flags, got, err)
			}
		}
		x.Must(f.Close(x.T))
	}
}

// TestCompressedNowait: a NOWAIT direct read of compressed or inline data says EAGAIN, also when it
// is in memory, as in Linux since 5.19.
func TestCompressedNowait(t *testing.T) {
	x := fstest.New(t, fstest.Image(compressedImage))
	for _, path := range []string{"/zlib/small", "/lzo/inline", "/zstd/seq"} {
		f := x.Open(path)
		x.ReadFile(path)
		if n, err := f.ReadIter(x.T, kiocb.Request{Flags: kiocb.Direct | kiocb.Nowait}, make([]byte, 4096)); !errors.Is(err, errno.EAGAIN) {
			t.Errorf("%s: have %d, %v want EAGAIN", path, n, err)
		}
		x.Must(f.Close(x.T))
	}
}

// TestCompressedMirrors: checksums are of the compressed sectors. A bad one is read from the other
// copy before anything is decoded, and is EIO when both are bad.
func TestCompressedMirrors(t *testing.T) {
	x := fstest.New(t, fstest.Image(compressedImage), fstest.NoCheck())
	want := x.ReadFile("/snap/zstd/seq")
	stream, err := os.ReadFile("../compress/testdata/seeds/zstd-full")
	x.Must(err)
	image := make([]byte, x.Dev.Size())
	x.Must(blockdev.Read(x.T, x.Dev, image, 0))
	first := bytes.Index(image, stream)
	second := first + 4096 + bytes.Index(image[first+4096:], stream)
	bad := bytes.Clone(stream)
	bad[100] ^= 1
	for _, c := range []struct {
		copies []int
		err    error
	}{{[]int{first}, nil}, {[]int{second}, nil}, {[]int{first, second}, errno.EIO}} {
		for _, at := range c.copies {
			x.Must(blockdev.Write(x.T, x.Dev, bad, int64(at)))
		}
		x.FS.DropCaches(x.T)
		f := x.Open("/snap/zstd/seq")
		have := make([]byte, 100000)
		if _, err := f.ReadAt(x.T, have, 1000); !errors.Is(err, c.err) || err == nil && !bytes.Equal(have, want[1000:][:len(have)]) {
			t.Errorf("bad copies at %d: have %v want %v", c.copies, err, c.err)
		}
		x.Must(f.Close(x.T))
		for _, at := range c.copies {
			x.Must(blockdev.Write(x.T, x.Dev, stream, int64(at)))
		}
	}
}

// TestBrokenStream reads extents whose items name another compression: the data is what its
// checksums say, and no stream of LZO. It is an error that says where, and no more.
func TestBrokenStream(t *testing.T) {
	const nodeSize = 16384
	x := fstest.New(t, fstest.Image(compressedImage), fstest.NoCheck())
	x.Close()
	image := make([]byte, x.Dev.Size())
	x.Must(blockdev.Read(x.T, x.Dev, image, 0))
	// ram_bytes, compression, encryption, other encoding, type
	item := binary.LittleEndian.AppendUint64(nil, 128<<10)
	item = append(item, format.CompressZlib, 0, 0, 0, format.FileExtentTypeReg)
	for at := 0; ; at++ {
		i := bytes.Index(image[at:], item)
		if i < 0 {
			break
		}
		at += i
		image[at+8] = format.CompressLZO
		start := at / nodeSize * nodeSize
		leaf := image[start:][:nodeSize]
		sum := format.CsumCRC32C.Sum(leaf[format.CsumField:])
		copy(leaf, sum[:])
		x.Must(blockdev.Write(x.T, x.Dev, leaf, int64(start)))
	}
	x.Reopen()
	for _, flags := range []kiocb.Flags{0, kiocb.Direct} {
		f := x.Open("/zlib/clone")
		_, err := f.ReadIter(x.T, kiocb.Request{Pos: 8192, Flags: flags}, make([]byte, 4096))
		if !errors.Is(err, errno.EIO) || !strings.Contains(fmt.Sprint(err), "off=8192 ") || !strings.Contains(fmt.Sprint(err), "corrupt lzo stream: bad length") {
			t.Errorf("flags %v: have %v want EIO, the place and what is wrong", flags, err)
		}
		if n, err := f.WriteAt(x.T, []byte("part of a page"), 100); !errors.Is(err, errno.EIO) {
			t.Errorf("a write of a part of a page: %d, %v want EIO", n, err)
		}
		x.Must(f.Close(x.T))
	}
	if have := x.ReadFile("/lzo/small"); len(have) != 7000 {
		t.Errorf("another file has %d bytes", len(have))
	}
}

// TestCompressedWrites changes compressed files in every way and compares them with a model.
func TestCompressedWrites(t *testing.T) {
	need.LongRaced(t)
	x := fstest.New(t, fstest.Image(compressedImage))
	for _, kind := range kinds {
		for _, name := range []string{"seq", "clone", "part", "hole", "range", "inline", "small"} {
			m := model{x: x, path: "/" + kind + "/" + name, r: rand.New(rand.NewPCG(3, uint64(len(name))))}
			m.data = x.ReadFile(m.path)
			m.change()
		}
	}
	snap := linuxSums(t)
	for path := range snap {
		if data := x.ReadFile(path); strings.HasPrefix(path, "/snap") && fmt.Sprintf("%x", sha256.Sum256(data)) != snap[path] {
			t.Errorf("%s of the snapshot changed", path)
		}
	}
	// Nothing is left of the extents and their checksums once all are gone: check finds what is.
	x.Must(x.FS.DeleteSubvolume(x.T, "/snap"))
	for _, kind := range kinds {
		for _, name := range []string{"seq", "clone", "part", "hole", "cut", "range", "inline", "small"} {
			x.Must(x.FS.Unlink(x.T, "/"+kind+"/"+name))
		}
	}
	x.Reopen()
	if u := x.FS.Statfs(x.T); u.DataUsed != 0 {
		t.Errorf("%d bytes of data are in use", u.DataUsed)
	}
}

// model is a file and what it must hold.
type model struct {
	x    *fstest.Fixture
	path string
	data []byte
	r    *rand.Rand
}

func (m *model) change() {
	x := m.x
	x.Helper()
	f := x.Open(m.path)
	for i := range 12 {
		size := len(m.data)
		off := m.r.IntN(size)
		n := min(1+m.r.IntN(20000), size-off)
		p := make([]byte, n)
		fstest.Random(m.r, p)
		switch i % 6 {
		case 0:
			x.WriteAt(f, p, int64(off))
			copy(m.data[off:], p)
		case 1:
			x.Must(f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
			clear(m.data[off:][:n])
		case 2:
			x.Must(f.Truncate(x.T, int64(size-n/2)))
			m.data = m.data[:size-n/2]
		case 3:
			x.Must(f.Truncate(x.T, int64(size+n)))
			m.data = append(m.data, make([]byte, n)...)
		case 4:
			off &^= 4095
			p = append(p, make([]byte, (4096-n%4096)%4096)...)
			if wrote, err := f.WriteDirect(x.T, p, int64(off)); err != nil || wrote != len(p) {
				x.Fatalf("%s: direct write: %d, %v", m.path, wrote, err)
			}
			m.data = append(m.data[:off], append(p, m.data[min(off+len(p), size):]...)...)
		case 5:
			c := x.Create(m.path + ".clone")
			x.WriteAt(c, make([]byte, 9000), 0)
			x.Must(c.Reflink(x.T, f, 0, 0, 4096))
			x.Must(c.Close(x.T))
			if have := x.ReadFile(m.path + ".clone"); len(have) != max(9000, 4096+size) || !bytes.Equal(have[4096:][:size], m.data) {
				x.Errorf("%s: the clone differs, %d bytes", m.path, len(have))
			}
			x.Must(x.FS.Unlink(x.T, m.path+".clone"))
		}
		if i%3 == 0 {
			x.Must(x.FS.Sync(x.T))
		}
		if m.r.IntN(2) == 0 {
			x.FS.DropCaches(x.T)
		}
		if have := x.ReadFile(m.path); !bytes.Equal(have, m.data) {
			x.Fatalf("%s: step %d: have %d bytes want %d, the first difference at %d", m.path, i, len(have), len(m.data), fstest.Differs(have, m.data))
		}
	}
	x.Must(f.Close(x.T))
}
