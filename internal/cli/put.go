package cli

import (
	"errors"
	"fmt"
	"os"
	gopath "path"
	"path/filepath"

	"github.com/spf13/cobra"

	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a *app) put() *cobra.Command {
	var recursive, nocow, verbose bool
	cmd := &cobra.Command{
		Use:   "put SOURCE... IMAGE:/path",
		Short: "copy files or trees of the host into an image",
		Long: `Put copies files into an image; SOURCE - is standard input. With -r it copies trees: files with their holes and
hard links, symbolic links and directories, with modes and times, and without owners: setuid and setgid go with an owner
that the copy does not have. Into a directory that exists the copy keeps its
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
		image, dest, err := a.fileSpec(cmd, args[len(args)-1])
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
			w := &watcher{app: a, verb: "put", verbose: verbose, bar: a.newBar("put", !verbose)}
			defer w.bar.done()
			in := transfer.NewIn(a.t, x, w)
			in.Nocow = nocow
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
				if s == "-" {
					err = in.Reader(a.stdin(), to)
				} else {
					err = in.Tree(s, to)
				}
				if err != nil {
					return inImage(image, to, err)
				}
			}
			return nil
		})
	}
	a.cacheFlag(cmd)
	return cmd
}
