package cli

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	gopath "path"
	"path/filepath"

	"github.com/spf13/cobra"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

func (a *app) put() *cobra.Command {
	var recursive, nocow, verbose bool
	cmd := &cobra.Command{
		Use:   "put SOURCE... IMAGE:/path",
		Short: "copy files or trees of the host into an image",
		Long: `Put copies files into an image; SOURCE - is standard input. With -r it copies trees: files with their holes and
hard links, symbolic links and directories, with modes and times. Into a directory that exists the copy keeps its
name; otherwise, with one SOURCE, /path is its new name. What was put before an interrupt or an error is committed.`,
		Example: `  btrlab put notes.txt disk.img:/
  btrlab put -r /usr/share/doc disk.img:/doc
  date | btrlab put - disk.img:/now`,
		Args: cobra.MinimumNArgs(2),
	}
	f := cmd.Flags()
	f.BoolVarP(&recursive, "recursive", "r", false, "copy directories with everything below")
	f.BoolVar(&nocow, "nocow", false, "make new files NOCOW, as chattr +C")
	f.BoolVarP(&verbose, "verbose", "v", false, "print each name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sources := args[:len(args)-1]
		image, dest, err := fileSpec(cmd, args[len(args)-1])
		if err != nil {
			return err
		}
		for _, s := range sources {
			if s == "-" {
				continue
			}
			st, err := os.Stat(s)
			if err != nil {
				return err
			}
			if st.IsDir() && !recursive {
				return usagef(cmd, "%s is a directory, want -r", s)
			}
		}
		return a.writeFS(image, func(x *fs.FS) error {
			p := &putter{app: a, x: x, nocow: nocow, verbose: verbose, links: map[hostIno]string{}, bar: a.newBar("put", !verbose)}
			defer p.bar.done()
			at, err := x.Stat(a.t, dest)
			intoDir := err == nil && at.IsDir()
			if !intoDir && len(sources) > 1 {
				return inImage(image, dest, fmt.Errorf("%d sources, want an existing directory", len(sources)))
			}
			for _, s := range sources {
				to := dest
				if intoDir {
					if s == "-" {
						return inImage(image, dest, errors.New("is a directory, want a name for standard input"))
					}
					abs, err := filepath.Abs(s)
					if err != nil {
						return err
					}
					to = gopath.Join(dest, filepath.Base(abs))
				}
				if err := p.put(s, to); err != nil {
					return inImage(image, to, err)
				}
			}
			return nil
		})
	}
	return cmd
}

// hostIno names a file of the host, whatever its path.
type hostIno struct{ dev, ino uint64 }

// putter copies host files into x.
type putter struct {
	*app
	x              *fs.FS
	nocow, verbose bool
	links          map[hostIno]string // files with several names on the host -> where the first one went
	bar            *bar
	files, known   uint64
	buf            []byte
}

func (p *putter) put(src, to string) error {
	if src == "-" {
		f, err := p.create(to, 0o644)
		if err != nil {
			return err
		}
		return p.finish(f, to, true, p.copyIn(f, p.stdin()))
	}
	st, err := os.Stat(src)
	if err != nil {
		return err
	}
	return p.entry(src, to, st)
}

// entry copies one object of any kind.
func (p *putter) entry(src, to string, st iofs.FileInfo) error {
	if err := p.interrupted(); err != nil {
		return err
	}
	if p.verbose {
		fmt.Fprintln(p.out, to)
	}
	p.files++
	p.known = max(p.known, p.files)
	p.bar.set(fmt.Sprintf("put %d files", p.files), p.files, p.known)
	switch mode := st.Mode(); {
	case mode.IsDir():
		return p.dir(src, to, st)
	case mode.IsRegular():
		if id, ok := linked(st); ok {
			if first, ok := p.links[id]; ok {
				return p.link(first, to)
			}
			p.links[id] = to
		}
		return p.file(src, to, st)
	case mode&os.ModeSymlink != 0:
		target, err := os.Readlink(src)
		if err != nil {
			return err
		}
		if err := p.unlinkOld(to); err != nil {
			return err
		}
		return p.x.Symlink(p.t, target, to)
	default:
		fmt.Fprintf(p.err, "btrlab: %s: %v left out, want files, directories and links\n", src, mode.Type())
		return nil
	}
}

func (p *putter) dir(src, to string, st iofs.FileInfo) error {
	err := p.x.Mkdir(p.t, to, 0o755)
	if err != nil && !errors.Is(err, errno.EEXIST) {
		return err
	}
	made := err == nil
	list, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	p.known += uint64(len(list))
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if err := p.entry(filepath.Join(src, e.Name()), gopath.Join(to, e.Name()), info); err != nil {
			return err
		}
	}
	if !made {
		return nil
	}
	return p.attrs(to, st)
}

// attrs copies mode and times.
func (p *putter) attrs(to string, st iofs.FileInfo) error {
	if err := p.x.Chmod(p.t, to, unixMode(st.Mode())); err != nil {
		return err
	}
	return p.x.Utimes(p.t, to, st.ModTime(), st.ModTime())
}

func unixMode(m iofs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for _, x := range []struct {
		bit  iofs.FileMode
		unix uint32
	}{{iofs.ModeSetuid, 0o4000}, {iofs.ModeSetgid, 0o2000}, {iofs.ModeSticky, 0o1000}} {
		if m&x.bit != 0 {
			mode |= x.unix
		}
	}
	return mode
}

func (p *putter) unlinkOld(to string) error {
	err := p.x.Unlink(p.t, to)
	if errors.Is(err, errno.ENOENT) {
		return nil
	}
	return err
}

func (p *putter) link(first, to string) error {
	if err := p.unlinkOld(to); err != nil {
		return err
	}
	return p.x.Link(p.t, first, to)
}

func (p *putter) create(to string, mode uint32) (*fs.File, error) {
	f, err := p.x.Create(p.t, to, mode)
	if err == nil && p.nocow {
		err = f.SetFlags(p.t, f.Flags()|format.InodeNoDataCow)
		if err != nil {
			f.Close(p.t)
		}
	}
	return f, err
}

func (p *putter) file(src, to string, st iofs.FileInfo) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	_, statErr := p.x.Lstat(p.t, to)
	f, err := p.create(to, unixMode(st.Mode()))
	if err != nil {
		return err
	}
	err = p.finish(f, to, errors.Is(statErr, errno.ENOENT), p.copyFile(f, in, st.Size()))
	if err != nil {
		return err
	}
	return p.attrs(to, st)
}

// finish closes f; after an error a file that is new is taken away again.
func (p *putter) finish(f *fs.File, to string, isNew bool, err error) error {
	if cerr := f.Close(p.t); err == nil {
		err = cerr
	}
	if err != nil && isNew {
		if uerr := p.x.Unlink(p.t, to); uerr != nil {
			return fmt.Errorf("%w; and the part that was put stays: %v", err, uerr)
		}
	}
	return err
}

// copyFile copies the data segments of in; holes stay holes.
func (p *putter) copyFile(f *fs.File, in *os.File, size int64) error {
	if size <= copyChunk {
		return p.copyIn(f, in)
	}
	for off := int64(0); off < size; {
		start, end, err := nextData(in, off, size)
		if err == io.EOF {
			break // a hole to the end
		}
		if err != nil {
			return err
		}
		if err := p.copyAt(f, io.NewSectionReader(in, start, end-start), start); err != nil {
			return err
		}
		off = end
	}
	if f.Size(p.t) < size {
		return f.Truncate(p.t, size)
	}
	return nil
}

func (p *putter) copyIn(f *fs.File, in io.Reader) error { return p.copyAt(f, in, 0) }

func (p *putter) copyAt(f *fs.File, in io.Reader, off int64) error {
	if p.buf == nil {
		p.buf = make([]byte, copyChunk)
	}
	for {
		if err := p.interrupted(); err != nil {
			return err
		}
		n, err := io.ReadFull(in, p.buf)
		if n > 0 {
			w, werr := f.WriteAt(p.t, p.buf[:n], off)
			if werr != nil {
				return werr
			}
			off += int64(w)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
