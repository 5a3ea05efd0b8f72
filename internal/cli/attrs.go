package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/format"
	"btrlab/internal/fs"
)

// The verbs that read and change what an inode has beside its contents.

func (a *app) chmod() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "chmod MODE IMAGE:/path...",
		Short:   "change the permissions of files, in octal",
		Example: "  btrlab chmod 4755 disk.img:/a",
		Args:    cobra.MinimumNArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		mode, err := parseMode(args[0])
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		return a.eachImage(cmd, args[1:], func(x *fs.FS, path string) error { return x.Chmod(a.t, path, mode) })
	}
	return cmd
}

func parseMode(s string) (uint32, error) {
	mode, err := strconv.ParseUint(s, 8, 32)
	if err != nil || mode > 0o7777 {
		return 0, fmt.Errorf("mode %q, want an octal number to 7777", s)
	}
	return uint32(mode), nil
}

func (a *app) chown() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chown UID:GID IMAGE:/path...",
		Short: "change the owner of files",
		Long: `Chown changes owner and group, as numbers: the users of this machine need not be those of the image. As in Linux setuid, setgid and
capabilities of a file go with its owner. A symbolic link is followed.`,
		Example: "  btrlab chown 1000:1000 disk.img:/home",
		Args:    cobra.MinimumNArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		own, err := parseOwner(args[0])
		if err == nil && own == nil {
			err = fmt.Errorf("no owner, want UID:GID")
		}
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		return a.eachImage(cmd, args[1:], func(x *fs.FS, path string) error { return a.giveAway(x, path, *own) })
	}
	return cmd
}

// giveAway changes the owner of path, and takes setuid and setgid away from what is no directory.
// Models chown_common().
func (a *app) giveAway(x *fs.FS, path string, own fs.Owner) error {
	at, err := x.Stat(a.t, path)
	if err != nil {
		return err
	}
	if err := x.Chown(a.t, path, own.UID, own.GID); err != nil || at.IsDir() {
		return err
	}
	mode := at.Mode & 0o7777 &^ 0o4000
	if mode&0o010 != 0 { // setgid without it is a mandatory lock, which stays
		mode &^= 0o2000
	}
	if mode == at.Mode&0o7777 {
		return nil
	}
	return x.Chmod(a.t, path, mode)
}

func (a *app) mknod() *cobra.Command {
	var mode string
	cmd := &cobra.Command{
		Use:     "mknod IMAGE:/path b|c|p|s [MAJOR MINOR]",
		Short:   "make a device (b, c), a pipe (p) or a socket (s)",
		Example: "  btrlab mknod disk.img:/null c 1 3 --mode 666",
		Args:    cobra.RangeArgs(2, 4),
	}
	cmd.Flags().StringVarP(&mode, "mode", "m", "644", "permissions, in octal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		perm, err := parseMode(mode)
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		kind, ok := map[string]uint32{"b": format.S_IFBLK, "c": format.S_IFCHR, "p": format.S_IFIFO, "s": format.S_IFSOCK}[args[1]]
		device := args[1] == "b" || args[1] == "c"
		switch {
		case !ok:
			return usagef(cmd, "type %q, want b, c, p or s", args[1])
		case device != (len(args) == 4):
			return usagef(cmd, "type %s with %d numbers, want MAJOR and MINOR for a device, and none else", args[1], len(args)-2)
		}
		var rdev uint64
		if device {
			major, merr := strconv.ParseUint(args[2], 10, 12)
			minor, nerr := strconv.ParseUint(args[3], 10, 20)
			if merr != nil || nerr != nil {
				return usagef(cmd, "device %s %s, want a major number to 4095 and a minor to 1048575", args[2], args[3])
			}
			rdev = major<<20 | minor
		}
		return a.eachImage(cmd, args[:1], func(x *fs.FS, path string) error {
			if err := x.Mknod(a.t, path, kind|perm, rdev); err != nil {
				return err
			}
			return x.Chmod(a.t, path, perm)
		})
	}
	return cmd
}

func (a *app) getxattr() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "getxattr IMAGE:/path [NAME]",
		Short: "show the extended attributes of a file, or the value of one",
		Long: `Getxattr lists the extended attributes with their values, bytes that cannot be printed as \ooo, or prints the value of one as
it is. A symbolic link is not followed. With --json values are in base64.`,
		Example: "  btrlab getxattr disk.img:/file user.origin",
		Args:    cobra.RangeArgs(1, 2),
	}
	cmd.ValidArgsFunction = a.completeSpec
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.fileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		return a.readFS(image, func(x *fs.FS) error {
			n, err := x.NodeAt(a.t, path)
			if err != nil {
				return inImage(image, path, err)
			}
			defer n.Forget(a.t, 1)
			if len(args) == 2 {
				value, err := n.Getxattr(a.t, args[1])
				if err != nil {
					return inImage(image, path, fmt.Errorf("attribute %s: %w", args[1], err))
				}
				_, err = a.out.Write(value)
				return err
			}
			values := map[string][]byte{}
			names, err := n.Listxattr(a.t)
			for _, name := range names {
				if values[name], err = n.Getxattr(a.t, name); err != nil {
					break
				}
			}
			if err != nil {
				return inImage(image, path, err)
			}
			if asJSON {
				return json.NewEncoder(a.out).Encode(values)
			}
			for _, name := range names {
				fmt.Fprintf(a.out, "%s=\"%s\"\n", shown(a.out, name), octal(values[name]))
			}
			return nil
		})
	}
	return cmd
}

// octal is b as getfattr -e text writes it.
func octal(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		switch {
		case c == '"' || c == '\\':
			fmt.Fprintf(&s, "\\%c", c)
		case c < 0x20 || c > 0x7e:
			fmt.Fprintf(&s, "\\%03o", c)
		default:
			s.WriteByte(c)
		}
	}
	return s.String()
}

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
