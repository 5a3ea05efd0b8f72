package wrecks

import (
	"crypto/sha256"
	"fmt"
	"io"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/mkfs"
)

// blockBytes is a sector of the images, and a page.
const blockBytes = 4096

var (
	dirNames = []string{"docs", "mail", "music", "plans", "src"}
	words    = []string{"anchor", "basket", "candle", "dragon", "ember", "forest", "garden", "harbor",
		"island", "jungle", "kettle", "ladder", "marble", "needle", "orchid", "pepper"}
	modes = []uint32{0o644, 0o640, 0o600, 0o755}
)

// In each folder.
const (
	filesPerDir = 6
	linksPerDir = 2
)

// tree makes the files of an image: in each folder some of one to six blocks, and names of files of
// another folder.
func (d *dice) tree() *mkfs.Entry {
	root := &mkfs.Entry{Mode: format.S_IFDIR | 0o755, Atime: began, Mtime: began}
	var earlier []*mkfs.Entry // of the folder before
	for _, name := range dirNames {
		dir := &mkfs.Entry{Name: name, Mode: format.S_IFDIR | 0o755, UID: 1000, GID: 1000, Atime: began, Mtime: began}
		root.Add(dir)
		used := map[string]bool{}
		fresh := func() string {
			for {
				if n := fmt.Sprintf("%s-%d", words[d.under(len(words))], 10+d.under(90)); !used[n] {
					used[n] = true
					return n
				}
			}
		}
		var files []*mkfs.Entry
		for range filesPerDir {
			f := &mkfs.Entry{Name: fresh(), Mode: format.S_IFREG | modes[d.under(len(modes))], UID: 1000, GID: 1000, Atime: began, Mtime: began}
			f.Size = int64(1+d.under(6))*blockBytes - int64(d.under(blockBytes-1))
			dir.Add(f)
			files = append(files, f)
		}
		for i := range min(linksPerDir, len(earlier)) {
			l := *earlier[i]
			l.Name, l.Link = fresh(), earlier[i]
			dir.Add(&l)
		}
		earlier = slices.Clone(files)
	}
	return root
}

// content is the contents of a file of size bytes: lines of text that say what they are, so that
// damage can be seen.
func content(path string, size int) []byte {
	var b []byte
	for line := 1; len(b) < size; line++ {
		h := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n", path, line))
		b = fmt.Appendf(b, "%-30s line %6d %x\n", path, line, h[:8])
	}
	return b[:size]
}

// opener opens the files of a tree.
type opener struct{}

func (opener) Open(e *mkfs.Entry) (mkfs.Object, error) {
	return file(content(e.Path(), int(e.Size))), nil
}
func (opener) Close() {}

// file is the contents of a file on its way into an image.
type file []byte

func (f file) Attrs() ([]image.Xattr, uint64, error) { return nil, 0, nil }
func (f file) Size() (int64, error)                  { return int64(len(f)), nil }
func (f file) Close() error                          { return nil }

func (f file) NextData(off, size int64) (start, end int64, err error) {
	if off >= size {
		return 0, 0, io.EOF
	}
	return off, size, nil
}

func (f file) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, f[min(off, int64(len(f))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
