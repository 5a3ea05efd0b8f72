package image

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

type attribute struct {
	letter, name string
	flag         uint64
	about        string
}

// attributes are those that chattr changes: the letter of chattr(1), the name of the hidden flag
// for -letter, and the inode flag.
var attributes = []attribute{
	{"a", "anywhere", fs.ChattrFlag("a"), "append only, it grows at its end and nothing else changes it"},
	{"A", "atime", fs.ChattrFlag("A"), "reading leaves its atime alone"},
	{"c", "uncompressed", fs.ChattrFlag("c"), "compressed, as its property says"},
	{"C", "cow", fs.ChattrFlag("C"), "no copy-on-write, for an empty file or for what is made in a directory"},
	{"d", "dump", fs.ChattrFlag("d"), "left out by dump(8)"},
	{"D", "dirasync", fs.ChattrFlag("D"), "changes of the directory are written at once"},
	{"i", "mutable", fs.ChattrFlag("i"), "immutable, nothing changes it"},
	{"m", "compressible", fs.ChattrFlag("m"), "never compressed"},
	{"S", "async", fs.ChattrFlag("S"), "what is written is written at once"},
}

// exclusive are the flags of which an inode has one.
const exclusive = compress.FlagsOfProperty | format.InodeNoDataCow

func (a verbs) chattr() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chattr +LETTER|-LETTER... IMAGE:/path...",
		Short: "set (+) or clear (-) an attribute",
		Long:  `Chattr sets an attribute with + and clears it with -. ` + letters() + `.`,
		Example: `  btrlab chattr +C disk.img:/vm
  btrlab chattr -i disk.img:/etc/passwd`,
		Args: cobra.MinimumNArgs(1),
	}
	minus := make([]*bool, len(attributes))
	var words []string
	for i, at := range attributes {
		minus[i] = cmd.Flags().BoolP(at.name, at.letter, false, "-"+at.letter)
		cmd.Flags().MarkHidden(at.name)
		words = append(words, "+"+at.letter, "-"+at.letter)
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 && cmd.Flags().NFlag() == 0 {
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		return a.CompleteSpec(cmd, args, word)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var set, clear uint64
		for i, at := range attributes {
			if *minus[i] {
				clear |= at.flag
			}
		}
		for len(args) > 0 && strings.HasPrefix(args[0], "+") {
			i := slices.IndexFunc(attributes, func(at attribute) bool { return args[0] == "+"+at.letter })
			if i < 0 {
				break
			}
			set |= attributes[i].flag
			args = args[1:]
		}
		switch {
		case len(args) == 0:
			return app.Usagef(cmd, "no file, want IMAGE:/path")
		case set|clear == 0:
			return app.Usagef(cmd, "attribute %q, want one of %s", args[0], strings.Join(words, " "))
		case set&clear != 0:
			return app.Usagef(cmd, "one attribute with + and with -, want either")
		}
		return a.EachImage(cmd, args, func(x *fs.FS, path string) error {
			at, err := x.Stat(a.Task, path)
			if err != nil {
				return err
			}
			have := fs.Shown(at.Flags)
			flags := have&^clear | set
			if flags == have {
				return nil
			}
			if err := x.SetFlags(a.Task, path, flags); err != nil {
				if errors.Is(err, errno.EINVAL) && (have|flags)&compress.FlagsOfProperty != 0 && (have^flags)&exclusive != 0 {
					return fmt.Errorf("c, m and C exclude each other: clear one before setting another: %w", err)
				}
				if at.IsRegular() && at.Size > 0 && errors.Is(err, errno.EINVAL) {
					return &app.NotEmptyError{Path: path, Size: at.Size}
				}
				return err
			}
			return nil
		})
	}
	return cmd
}
