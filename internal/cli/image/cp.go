package image

import (
	"errors"
	gopath "path"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

// cp is the verb of sh that copies within the open image, and between those that are mounted there.
func (a verbs) cp() *cobra.Command {
	var recursive, archive, snapshots, verbose bool
	var keep keepFlags
	cmd := &cobra.Command{
		Use:   "cp IMAGE:/from... /to",
		Short: "copy files or trees, also from one mounted image into another",
		Long: `Cp copies files, and with -r trees, with all that put and get keep: owners, modes, times, extended attributes, flags of chattr,
holes, hard links, devices. Into a directory that exists the copy keeps its name. Subvolumes become directories; reflink shares data.`,
		Example: `  btrlab cp -r disk.img:/src /data`,
		Args:    cobra.MinimumNArgs(2),
	}
	f := cmd.Flags()
	f.BoolVarP(&recursive, "recursive", "r", false, "copy directories with everything below")
	f.BoolVarP(&archive, "archive", "a", false, "the same as -r: all is kept anyway")
	f.BoolVarP(&snapshots, "snapshots", "s", false, "copy snapshots as well")
	f.BoolVarP(&verbose, "verbose", "v", false, "print each name")
	keep.add(f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		last := len(args) - 1
		dest, to, err := a.FileSpec(cmd, args[last])
		if err != nil {
			return err
		}
		w := &watcher{verbs: a, verb: "cp", verbose: verbose, bar: a.NewBar("cp", !verbose)}
		defer w.bar.Done()
		err = a.WriteFS(dest, func(into *fs.FS) error {
			in := transfer.NewIn(a.Task, into, w)
			in.Keep = keep.keep(transfer.All)
			if now, err := app.SourceDate(); err == nil && now != nil {
				in.Date = now()
			}
			there, err := into.Stat(a.Task, to)
			isDir := err == nil && there.IsDir()
			if !isDir && last > 1 {
				return app.Usagef(cmd, "%d sources and %s, want an existing directory", last, args[last])
			}
			for _, arg := range args[:last] {
				image, from, err := a.FileSpec(cmd, arg)
				if err != nil {
					return err
				}
				name := to
				if isDir {
					name = gopath.Join(to, gopath.Base(from))
				}
				w.image = image
				if err := a.copyAcross(in, image, from, name, recursive || archive, snapshots); err != nil {
					return err
				}
			}
			return w.allThere()
		})
		return err
	}
	return cmd
}

// copyAcross copies what is at from in an image to the name to, where in copies to.
func (a verbs) copyAcross(in *transfer.In, image, from, to string, recursive, snapshots bool) error {
	return a.ReadFS(image, func(x *fs.FS) error {
		at, err := x.Stat(a.Task, from)
		switch {
		case err != nil:
			return app.InImage(image, from, err)
		case at.IsDir() && !recursive:
			return app.InImage(image, from, errors.New("is a directory, want -r"))
		}
		return app.InImage(image, from, in.From(x, from, to, snapshots))
	})
}
