package cli

import (
	"io"

	"github.com/spf13/cobra"

	"btrlab/internal/fs"
)

const copyChunk = 1 << 20 // bytes per read or write of a copy

func (a *app) cat() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cat IMAGE:/path...",
		Short:   "write files to standard output",
		Example: "  btrlab cat disk.img:/etc/passwd",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			image, path, err := fileSpec(cmd, arg)
			if err != nil {
				return err
			}
			err = a.readFS(image, func(x *fs.FS) error {
				f, err := x.OpenFile(a.t, path, fs.O_RDONLY, 0)
				if err != nil {
					return inImage(image, path, err)
				}
				err = a.copyOut(a.out, f)
				if cerr := f.Close(a.t); err == nil {
					err = cerr
				}
				return inImage(image, path, err)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// skipper is a writer that can leave a run of zeros out.
type skipper interface{ skip(n int64) }

// copyOut writes the whole of f to w. The file's holes are not read: w skips them, or gets zeros.
func (a *app) copyOut(w io.Writer, f *fs.File) error {
	var buf []byte
	for off := int64(0); ; {
		start, end, err := f.SeekData(a.t, off)
		if err == io.EOF {
			return a.copyHole(w, f.Size(a.t)-off)
		}
		if err != nil {
			return err
		}
		if err := a.copyHole(w, start-off); err != nil {
			return err
		}
		if buf == nil {
			buf = make([]byte, min(copyChunk, max(f.Size(a.t), 4096)))
		}
		for off = start; off < end; {
			if err := a.interrupted(); err != nil {
				return err
			}
			n, err := f.ReadAt(a.t, buf[:min(int64(len(buf)), end-off)], off)
			if n > 0 {
				if _, werr := w.Write(buf[:n]); werr != nil {
					return werr
				}
				off += int64(n)
			}
			if err == io.EOF || err == nil && n == 0 {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
}

// copyHole gives w n bytes of zeros.
func (a *app) copyHole(w io.Writer, n int64) error {
	if s, ok := w.(skipper); ok {
		s.skip(n)
		return nil
	}
	for n > 0 {
		if err := a.interrupted(); err != nil {
			return err
		}
		m, err := w.Write(zeros[:min(n, int64(len(zeros)))])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}
