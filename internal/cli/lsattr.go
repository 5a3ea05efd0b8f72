package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/fs"
)

func (a *app) lsattr() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lsattr IMAGE:/path...",
		Short:   "list the attributes that chattr changes, of files or of what is in directories",
		Long:    `Lsattr prints a letter for each attribute, - where it is not set, and the path. Of a directory it lists the entries. ` + letters() + `.`,
		Example: "  btrlab lsattr disk.img:/",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			image, path, err := a.fileSpec(cmd, arg)
			if err != nil {
				return err
			}
			err = a.readFS(image, func(x *fs.FS) error { return inImage(image, path, a.listAttributes(x, path)) })
			if err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func (a *app) listAttributes(x *fs.FS, path string) error {
	at, err := x.Lstat(a.t, path)
	if err != nil {
		return err
	}
	if !at.IsDir() {
		writeAttributes(a.out, at.Flags, path)
		return nil
	}
	list, err := x.ReadDir(a.t, path)
	if err != nil {
		return err
	}
	for _, e := range list {
		full := strings.TrimSuffix(path, "/") + "/" + e.Name
		at, err := x.Lstat(a.t, full)
		if err != nil {
			return err
		}
		if at.IsDir() || at.IsRegular() {
			writeAttributes(a.out, at.Flags, full)
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
	fmt.Fprintf(out, "%s %s\n", word, shown(out, path))
}

// letters says what the letters of attributes are.
func letters() string {
	var list []string
	for _, at := range attributes {
		list = append(list, at.letter+": "+at.about)
	}
	return strings.Join(list, "; ")
}
