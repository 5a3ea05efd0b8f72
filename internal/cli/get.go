package cli

import (
	"bytes"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	gopath "path"
	"path/filepath"

	"github.com/spf13/cobra"

	"btrlab/internal/fs"
)

func (a *app) get() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "get IMAGE:/path [DEST]",
		Short: "copy files or trees out of an image",
		Long: `Get copies a file, or with -r a tree, to the host: files with their holes and hard links, symbolic links and
directories, with modes and times. DEST is a name or an existing directory, default the current one; - is standard output.`,
		Example: `  btrlab get disk.img:/etc/passwd
  btrlab get -r disk.img:/src /tmp/src`,
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy directories with everything below")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := fileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		dest := "."
		if len(args) == 2 {
			dest = args[1]
		}
		return a.readFS(image, func(x *fs.FS) error {
			at, err := x.Stat(a.t, path)
			if err != nil {
				return inImage(image, path, err)
			}
			if at.IsDir() && !recursive {
				return usagef(cmd, "%s:%s is a directory, want -r", image, path)
			}
			if dest == "-" {
				f, err := x.OpenFile(a.t, path, fs.O_RDONLY, 0)
				if err != nil {
					return inImage(image, path, err)
				}
				err = a.copyOut(a.out, f)
				if cerr := f.Close(a.t); err == nil {
					err = cerr
				}
				return inImage(image, path, err)
			}
			if st, err := os.Stat(dest); err == nil && st.IsDir() && path != "/" {
				dest = filepath.Join(dest, gopath.Base(path))
			}
			g := &getter{app: a, x: x, links: map[uint64]string{}, bar: a.newBar("get", true)}
			defer g.bar.done()
			return inImage(image, path, g.entry(path, dest, at))
		})
	}
	return cmd
}

// getter copies files of x to the host.
type getter struct {
	*app
	x            *fs.FS
	links        map[uint64]string // inodes with several names -> where the first one went
	bar          *bar
	files, known uint64
}

func (g *getter) entry(path, dest string, at fs.Attr) error {
	if err := g.interrupted(); err != nil {
		return err
	}
	g.files++
	g.known = max(g.known, g.files)
	g.bar.set(fmt.Sprintf("get %d files", g.files), g.files, g.known)
	switch {
	case at.IsDir():
		return g.dir(path, dest, at)
	case at.IsSymlink():
		target, err := g.x.Readlink(g.t, path)
		if err != nil {
			return err
		}
		if err := os.Remove(dest); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
		return os.Symlink(target, dest)
	case at.IsRegular():
		if at.Nlink > 1 {
			if first, ok := g.links[at.Ino]; ok {
				if err := os.Remove(dest); err != nil && !errors.Is(err, iofs.ErrNotExist) {
					return err
				}
				return os.Link(first, dest)
			}
			g.links[at.Ino] = dest
		}
		return g.file(path, dest, at)
	default:
		fmt.Fprintf(g.err, "btrlab: %s: %s left out, want files, directories and links\n", path, typeWord(at.Mode))
		return nil
	}
}

func (g *getter) dir(path, dest string, at fs.Attr) error {
	if err := os.Mkdir(dest, 0o700|os.FileMode(at.Mode&0o777)); err != nil && !errors.Is(err, iofs.ErrExist) {
		return err
	}
	list, err := g.x.ReadDir(g.t, path)
	if err != nil {
		return err
	}
	g.known += uint64(len(list))
	for _, e := range list {
		full := gopath.Join(path, e.Name)
		if e.Subvol != 0 {
			fmt.Fprintf(g.err, "btrlab: %s: subvolume %d left out\n", full, e.Subvol)
			continue
		}
		// A name that would leave dest cannot come from a sound image; do not follow it from any other.
		if e.Name == "." || e.Name == ".." || filepath.Base(e.Name) != e.Name {
			return fmt.Errorf("directory %s has the name %q, want one without /", path, e.Name)
		}
		at, err := g.x.Lstat(g.t, full)
		if err != nil {
			return err
		}
		if err := g.entry(full, filepath.Join(dest, e.Name), at); err != nil {
			return err
		}
	}
	return g.attrs(dest, at)
}

func (g *getter) attrs(dest string, at fs.Attr) error {
	if err := os.Chmod(dest, hostMode(at.Mode)); err != nil {
		return err
	}
	return os.Chtimes(dest, at.Atime, at.Mtime)
}

func hostMode(mode uint32) os.FileMode {
	m := os.FileMode(mode & 0o777)
	if mode&0o4000 != 0 {
		m |= os.ModeSetuid
	}
	if mode&0o2000 != 0 {
		m |= os.ModeSetgid
	}
	if mode&0o1000 != 0 {
		m |= os.ModeSticky
	}
	return m
}

func (g *getter) file(path, dest string, at fs.Attr) error {
	f, err := g.x.OpenFile(g.t, path, fs.O_RDONLY|fs.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close(g.t)
	out, err := os.OpenFile(dest, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = g.copyOut(&sparseWriter{f: out}, f)
	if err == nil {
		err = out.Truncate(f.Size(g.t))
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return g.attrs(dest, at)
}

// sparseWriter leaves blocks of zeros as holes. The caller sets the size at the end.
type sparseWriter struct {
	f   *os.File
	off int64
}

func (s *sparseWriter) skip(n int64) { s.off += n }

// zeros is what a hole reads as, many blocks of it.
var zeros [copyChunk / 4]byte

const hostBlock = 4096 // a smaller run of zeros is not left out

func (s *sparseWriter) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		start := done
		for done < len(p) && !isZeroBlock(p[done:]) {
			done += min(hostBlock, len(p)-done)
		}
		if done > start {
			if _, err := s.f.WriteAt(p[start:done], s.off+int64(start)); err != nil {
				return start, err
			}
		}
		for done < len(p) && isZeroBlock(p[done:]) {
			done += min(hostBlock, len(p)-done)
		}
	}
	s.off += int64(len(p))
	return len(p), nil
}

func isZeroBlock(p []byte) bool {
	n := min(len(p), hostBlock)
	return bytes.Equal(p[:n], zeros[:n])
}
