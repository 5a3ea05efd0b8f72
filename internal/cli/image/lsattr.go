package image

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

func (a verbs) lsattr() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lsattr IMAGE:/path...",
		Short:   "list the attributes that chattr changes, of files or of what is in directories",
		Long:    `Lsattr prints a letter for each attribute, - where it is not set, and the path. Of a directory it lists the entries. ` + letters() + `.`,
		Example: "  btrlab lsattr disk.img:/",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			image, path, err := a.FileSpec(cmd, arg)
			if err != nil {
				return err
			}
			err = a.ReadFS(image, func(x *fs.FS) error { return app.InImage(image, path, a.listAttributes(x, path)) })
			if err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func (a verbs) listAttributes(x *fs.FS, path string) error {
	at, err := x.Lstat(a.Task, path)
	if err != nil {
		return err
	}
	if !at.IsDir() {
		writeAttributes(a.Out, at.Flags, path)
		return nil
	}
	list, err := x.ReadDir(a.Task, path)
	if err != nil {
		return err
	}
	for _, e := range list {
		full := strings.TrimSuffix(path, "/") + "/" + e.Name
		at, err := x.Lstat(a.Task, full)
		if err != nil {
			return err
		}
		if at.IsDir() || at.IsRegular() {
			writeAttributes(a.Out, at.Flags, full)
		}
	}
	return nil
}

func writeAttributes(out io.Writer, flags uint64, path string) {
	word := ""
	flags = fs.Shown(flags)
	for _, at := range attributes {
		if flags&at.flag != 0 {
			word += at.letter
		} else {
			word += "-"
		}
	}
	fmt.Fprintf(out, "%s %s\n", word, app.Shown(out, path))
}

// letters says what the letters of attributes are.
func letters() string {
	var list []string
	for _, at := range attributes {
		list = append(list, at.letter+": "+at.about)
	}
	return strings.Join(list, "; ")
}
