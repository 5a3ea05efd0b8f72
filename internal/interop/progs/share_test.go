package progs

import (
	le "encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
)

// TestGetShares: get on a host that shares blocks takes no room for what is in the image, with
// holes, odd ends, a file in a partition, and pieces of one extent; what is compressed, small, or
// damaged is as it is without.
func TestGetShares(t *testing.T) {
	interop.Linux(t)
	src, f := t.TempDir(), interop.NewFiller(17)
	big := f.Bytes(24<<20 + 5)
	interop.Write(t, filepath.Join(src, "big"), big)
	interop.Write(t, filepath.Join(src, "small"), f.Bytes(30000))
	holes := filepath.Join(src, "holes")
	interop.Write(t, holes, f.Bytes(3<<20))
	interop.Sh(t, "fallocate", "--punch-hole", "--offset", "500000", "--length", "1000000", holes)
	interop.Sh(t, "truncate", "-s", "5000001", holes)
	host := interop.Image(t, "host.img")
	interop.Sh(t, "truncate", "-s", "1G", host)
	interop.Sh(t, "mkfs.btrfs", "-q", "-m", "single", host)
	interop.Mounted(t, host, "", func(dir string) {
		used := func() int64 {
			interop.Sh(t, "sync", "-f", dir)
			var st unix.Statfs_t
			interop.Must(t, unix.Statfs(dir, &st))
			return int64(st.Blocks-st.Bfree) * st.Bsize
		}
		img := filepath.Join(dir, "image")
		interop.Btrlab(t, "mkfs", "-q", "--size", "200M", img)
		interop.Btrlab(t, "put", "-r", src, img+":/d")
		interop.Btrlab(t, "put", "--compress", "zstd", filepath.Join(src, "small"), img+":/packed")
		interop.Btrlab(t, "reflink", img+":/d/big", img+":/part")
		interop.Btrlab(t, "truncate", "--size", "9000000", img+":/part")
		whole := filepath.Join(dir, "disk")
		interop.Sh(t, "truncate", "-s", "201M", whole)
		interop.Sh(t, "dd", "if="+img, "of="+whole, "bs=1M", "seek=1", "conv=notrunc", "status=none")
		for _, from := range []struct {
			name, image string
		}{{"the image", img}, {"a partition", whole}} {
			if from.image == whole {
				mbr := make([]byte, 512)
				mbr[446+4], mbr[510], mbr[511] = 0x83, 0x55, 0xaa
				le.LittleEndian.PutUint32(mbr[446+8:], 2048)
				le.LittleEndian.PutUint32(mbr[446+12:], 200<<20/512)
				disk, err := os.OpenFile(whole, os.O_WRONLY, 0)
				interop.Must(t, err)
				_, err = disk.WriteAt(mbr, 0)
				interop.Must(t, errors.Join(err, disk.Close()))
			}
			before := used()
			out := filepath.Join(dir, "out")
			interop.Btrlab(t, "get", "-r", from.image+":/d", out)
			interop.Btrlab(t, "get", from.image+":/part", filepath.Join(dir, "part"))
			interop.Btrlab(t, "get", from.image+":/packed", filepath.Join(dir, "packed"))
			if n := used() - before; n > 4<<20 {
				t.Errorf("get from %s took %d bytes of the host", from.name, n)
			}
			interop.NoTimes(t, out, src)
			interop.SameTree(t, out, src)
			if have := slurp(t, filepath.Join(dir, "part")); string(have) != string(big[:9000000]) {
				t.Errorf("%s: a part of the extent: %d bytes, not the file's", from.name, len(have))
			}
			if have, want := slurp(t, filepath.Join(dir, "packed")), slurp(t, filepath.Join(src, "small")); string(have) != string(want) {
				t.Errorf("%s: the compressed file is not the file", from.name)
			}
			// The copies are their own.
			interop.Write(t, filepath.Join(out, "big"), []byte("changed"))
			interop.Btrlab(t, "check", from.image)
			interop.Must(t, os.RemoveAll(out))
		}
	})
}

func slurp(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	interop.Must(t, err)
	return b
}
