package image

import (
	"bufio"
	"errors"
	"io"
	"os"
	gopath "path"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a verbs) get() *cobra.Command {
	var recursive, snapshots, asTar bool
	var keep keepFlags
	cmd := &cobra.Command{
		Use:   "get IMAGE:/path [DEST]",
		Short: "copy files or trees out of an image",
		Long: `Get copies a file, or with -r a tree, to the host: files with their holes and hard links, symbolic links,
directories, devices, pipes and sockets, with modes, times, extended attributes and the flags of chattr, and as root with owners. Setuid,
setgid and capabilities go with an owner that the copy does not have.
DEST is a name or an existing directory, default the current one; - is standard output. A symbolic link that lies in a
directory of DEST is not followed: a file takes its place, a directory is left out. An archive holds the zeros of
holes, too.
With -r it goes into subvolumes, and into snapshots with --snapshots. What cannot be read is left out with a message, and so is what the
host refuses: a link, a device, an attribute; get goes on, and the exit code is 1.`,
		Example: `  btrlab get disk.img:/etc/passwd
  btrlab get -r disk.img:/src /tmp/src
  btrlab get --tar disk.img:/src src.tar`,
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy directories with everything below")
	cmd.Flags().BoolVarP(&snapshots, "snapshots", "s", false, "copy snapshots as well")
	cmd.Flags().BoolVar(&asTar, "tar", false, "write a tar archive with all that is below, to the file DEST or, without it, to standard output")
	keep.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		dest := "."
		if asTar {
			dest = "-"
		}
		if len(args) == 2 {
			dest = args[1]
		}
		return a.ReadFS(image, func(x *fs.FS) error {
			at, err := x.Stat(a.Task, path)
			if err != nil {
				return app.InImage(image, path, err)
			}
			if asTar {
				return a.getTar(x, image, path, dest, snapshots, &keep)
			}
			if at.IsDir() && !recursive {
				return app.Usagef(cmd, "%s is a directory, want -r", path)
			}
			if dest == "-" {
				f, err := x.OpenFile(a.Task, path, fs.O_RDONLY, 0)
				if err != nil {
					return app.InImage(image, path, err)
				}
				err = transfer.Read(a.Task, &watcher{verbs: a}, f, a.Out)
				if cerr := f.Close(a.Task); err == nil {
					err = cerr
				}
				return app.InImage(image, path, err)
			}
			w := &watcher{verbs: a, verb: "get", bar: a.NewBar("get", true), image: image}
			defer w.bar.Done()
			out := transfer.NewOut(a.Task, x, w)
			out.Snapshots, out.Keep = snapshots, keep.keep(out.Keep)
			if st, serr := os.Stat(dest); serr == nil && st.IsDir() && path != "/" {
				err = out.Into(path, dest, gopath.Base(path))
			} else {
				err = out.Tree(path, dest)
			}
			if err == nil {
				err = w.allThere()
			}
			return app.InImage(image, path, err)
		})
	}
	a.SmallCacheFlag(cmd, 32<<20)
	app.ProfileFlags(a.Run, cmd, true)
	return cmd
}

// getTar writes an archive to the file dest, or to standard output.
func (a verbs) getTar(x *fs.FS, image, path, dest string, snapshots bool, keep *keepFlags) error {
	w := &watcher{verbs: a, verb: "get", bar: a.NewBar("get", dest != "-"), image: image}
	defer w.bar.Done()
	out := transfer.NewOut(a.Task, x, w)
	out.Snapshots, out.Keep = snapshots, keep.keep(transfer.All)
	name := ""
	if path != "/" {
		name = gopath.Base(path)
	}
	write := func(to io.Writer) error {
		b := bufio.NewWriterSize(to, 1<<20)
		return errors.Join(out.Tar(path, name, b), b.Flush())
	}
	var err error
	if dest == "-" {
		err = write(a.Out)
	} else {
		err = app.ReplaceFile(dest, write)
	}
	if err == nil {
		err = w.allThere()
	}
	return app.InImage(image, path, err)
}
