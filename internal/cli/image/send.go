package image

import (
	"bufio"
	"errors"
	"io"
	gopath "path"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a verbs) send() *cobra.Command {
	var parent, file string
	var clones []string
	var proto int
	var noData bool
	cmd := &cobra.Command{
		Use:   "send [-p PARENT] IMAGE:/snapshot",
		Short: "describe a read-only snapshot as a stream for btrfs receive, or receive here",
		Long: `Send writes the stream of a read-only subvolume to standard output, or to a file. With -p it is the difference
from another one, which the receiver has: received before, or itself. What files share with each other, with the parent or with a clone
source (-c) is sent as a clone. Preallocated space and inode flags are not sent, as by btrfs send.`,
		Example: `  btrlab send disk.img:/backup/monday | btrlab receive other.img
  btrlab send -f snap.stream disk.img:/backup/monday
  btrlab send -p /backup/monday --proto 2 -f next.stream disk.img:/backup/tuesday`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	f := cmd.Flags()
	f.StringVarP(&parent, "parent", "p", "", "send the difference from this subvolume, /path in the image")
	f.StringArrayVarP(&clones, "clone", "c", nil, "a subvolume that the receiver has, to clone from; may be given again")
	f.IntVar(&proto, "proto", 1, "version of the stream, 1 or 2")
	f.BoolVar(&noData, "no-data", false, "send which ranges of files have changed, and no data")
	f.StringVarP(&file, "file", "f", "", "write the stream to this file instead of standard output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		if err := app.Check(cmd, app.Within(proto, 1, 2, "--proto %d, want 1 or 2")); err != nil {
			return err
		}
		others := clones
		if parent != "" {
			others = append([]string{parent}, clones...)
		}
		others, err = a.sameImage(cmd, image, others)
		if err != nil {
			return err
		}
		if file == "" && app.IsTerminal(a.Out) {
			return app.Usagef(cmd, "the stream is no text for a terminal, want -f FILE or a pipe")
		}
		return a.ReadFS(image, func(x *fs.FS) error {
			s := transfer.Send{Version: uint32(proto), NoData: noData}
			for i, p := range others {
				z, err := a.frozen(x, image, p)
				if err != nil {
					return err
				}
				if i == 0 && parent != "" {
					s.Parent = z
				} else {
					s.Clones = append(s.Clones, z)
				}
			}
			z, err := a.frozen(x, image, path)
			if err != nil {
				return err
			}
			w := &watcher{verbs: a, verb: "send", bar: a.NewBar("send", file != "")}
			defer w.bar.Done()
			write := func(to io.Writer) error {
				b := bufio.NewWriterSize(to, 1<<20)
				return errors.Join(s.Send(a.Task, x, w, z, b), b.Flush())
			}
			if file == "" || file == "-" {
				err = write(a.Out)
			} else {
				err = app.ReplaceFile(file, write)
			}
			return app.InImage(image, path, err)
		})
	}
	a.SmallCacheFlag(cmd, 32<<20)
	return cmd
}

// sameImage makes /path of specs, which name subvolumes of the image as IMAGE:/path or /path.
func (a verbs) sameImage(cmd *cobra.Command, image string, specs []string) (paths []string, err error) {
	for _, s := range specs {
		if other, path, ok := a.SplitSpec(s); ok {
			if other != image {
				return nil, app.Usagef(cmd, "%s and %s are two images, want one", image, other)
			}
			s = path
		}
		if !gopath.IsAbs(s) {
			return nil, app.Usagef(cmd, "%q is no path in the image, want /path", s)
		}
		paths = append(paths, gopath.Clean(s))
	}
	return paths, nil
}

// frozen opens a read-only subvolume.
func (a verbs) frozen(x *fs.FS, image, path string) (*fs.Frozen, error) {
	n, err := x.NodeAt(a.Task, path)
	if err == nil {
		defer n.Forget(a.Task, 1)
		var z *fs.Frozen
		if z, err = n.Frozen(a.Task); err == nil {
			return z, nil
		}
	}
	if errors.Is(err, errno.EPERM) {
		err = errors.New("the subvolume is not read-only, want a snapshot made with snapshot -r")
	}
	return nil, app.InImage(image, path, err)
}
