package image

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/script"
)

// smallVerb is a verb that calls the file system once for each of its paths.
type smallVerb struct {
	use, short, long, example string

	args  cobra.PositionalArgs
	paths bool // the first argument is a path, and is completed

	// verb adds the flags to f, and returns what the verb does.
	verb func(a verbs, f *pflag.FlagSet) run
}

type run = func(cmd *cobra.Command, args []string) error

// small makes the verbs of smallVerbs.
func (a verbs) small() []*cobra.Command {
	var l []*cobra.Command
	for _, v := range smallVerbs {
		cmd := &cobra.Command{Use: v.use, Short: v.short, Long: v.long, Example: v.example, Args: v.args}
		if v.paths {
			cmd.ValidArgsFunction = a.CompleteSpec
		}
		cmd.RunE = v.verb(a, cmd.Flags())
		l = append(l, cmd)
	}
	return l
}

var smallVerbs = []smallVerb{{
	use: "mkdir IMAGE:/path...", short: "make directories", args: cobra.MinimumNArgs(1), paths: true,
	example: "  btrlab mkdir -p disk.img:/var/lib/data",
	verb: func(a verbs, f *pflag.FlagSet) run {
		parents := f.BoolP("parents", "p", false, "make missing parents; no error when it is there")
		mode := f.StringP("mode", "m", "755", "permissions, octal")
		return func(cmd *cobra.Command, args []string) error {
			perm, err := strconv.ParseUint(*mode, 8, 12)
			if err != nil {
				return app.Usagef(cmd, "mode %q, want an octal number up to 7777", *mode)
			}
			return a.EachImage(cmd, args, func(x *fs.FS, path string) error {
				if *parents {
					return script.MkdirAll(a.Task, x, path, uint32(perm))
				}
				return x.Mkdir(a.Task, path, uint32(perm))
			})
		}
	},
}, {
	use: "touch IMAGE:/path...", short: "make empty files; those that are there stay as they are", args: cobra.MinimumNArgs(1), paths: true,
	example: "  btrlab touch disk.img:/file",
	verb: func(a verbs, _ *pflag.FlagSet) run {
		return func(cmd *cobra.Command, args []string) error {
			return a.EachImage(cmd, args, func(x *fs.FS, path string) error { return script.Touch(a.Task, x, path) })
		}
	},
}, {
	use: "chmod MODE IMAGE:/path...", short: "change the permissions of files, in octal", args: cobra.MinimumNArgs(2),
	example: "  btrlab chmod 4755 disk.img:/a",
	verb: func(a verbs, _ *pflag.FlagSet) run {
		return func(cmd *cobra.Command, args []string) error {
			mode, err := script.ParseMode(args[0])
			if err != nil {
				return app.Usagef(cmd, "%v", err)
			}
			return a.EachImage(cmd, args[1:], func(x *fs.FS, path string) error { return x.Chmod(a.Task, path, mode) })
		}
	},
}, {
	use: "chown UID:GID IMAGE:/path...", short: "change the owner of files", args: cobra.MinimumNArgs(2),
	long: `Chown changes owner and group, as numbers: the users of this machine need not be those of the image. As in Linux setuid, setgid and
capabilities of a file go with its owner. A symbolic link is followed.`,
	example: "  btrlab chown 1000:1000 disk.img:/home",
	verb: func(a verbs, _ *pflag.FlagSet) run {
		return func(cmd *cobra.Command, args []string) error {
			own, err := parseOwner(args[0])
			if err == nil && own == nil {
				err = fmt.Errorf("no owner, want UID:GID")
			}
			if err != nil {
				return app.Usagef(cmd, "%v", err)
			}
			return a.EachImage(cmd, args[1:], func(x *fs.FS, path string) error { return a.giveAway(x, path, *own) })
		}
	},
}, {
	use: "mknod IMAGE:/path b|c|p|s [MAJOR MINOR]", short: "make a device (b, c), a pipe (p) or a socket (s)", args: cobra.RangeArgs(2, 4),
	example: "  btrlab mknod disk.img:/null c 1 3 --mode 666",
	verb: func(a verbs, f *pflag.FlagSet) run {
		mode := f.StringP("mode", "m", "644", "permissions, in octal")
		return func(cmd *cobra.Command, args []string) error {
			perm, err := script.ParseMode(*mode)
			if err != nil {
				return app.Usagef(cmd, "%v", err)
			}
			kind, rdev, err := parseDevice(cmd, args[1:])
			if err != nil {
				return err
			}
			return a.EachImage(cmd, args[:1], func(x *fs.FS, path string) error {
				if err := x.Mknod(a.Task, path, kind|perm, rdev); err != nil {
					return err
				}
				return x.Chmod(a.Task, path, perm)
			})
		}
	},
}, {
	use: "setxattr NAME VALUE IMAGE:/path", short: "give a file an extended attribute", args: cobra.ExactArgs(3),
	example: "  btrlab setxattr user.origin mirror disk.img:/file",
	verb: func(a verbs, _ *pflag.FlagSet) run {
		return func(cmd *cobra.Command, args []string) error {
			// Linux answers EOPNOTSUPP to other names, and shows no program those that are there.
			space, name, ok := strings.Cut(args[0], ".")
			if !ok || name == "" || !slices.Contains(namespaces, space) {
				return app.Usagef(cmd, "attribute %q, want a name that begins with user., trusted., security., system. or btrfs.", args[0])
			}
			return a.EachImage(cmd, args[2:], func(x *fs.FS, path string) error { return x.Setxattr(a.Task, path, args[0], []byte(args[1])) })
		}
	},
}, {
	use: "removexattr NAME IMAGE:/path...", short: "take an extended attribute from files", args: cobra.MinimumNArgs(2),
	example: "  btrlab removexattr user.origin disk.img:/file",
	verb: func(a verbs, _ *pflag.FlagSet) run {
		return func(cmd *cobra.Command, args []string) error {
			return a.EachImage(cmd, args[1:], func(x *fs.FS, path string) error { return script.RemoveXattr(a.Task, x, path, args[0]) })
		}
	},
}, {
	use: "truncate --size N IMAGE:/path", short: "set the size of a file", args: cobra.ExactArgs(1), paths: true,
	example: "  btrlab truncate --size 1M disk.img:/file",
	verb: func(a verbs, f *pflag.FlagSet) run {
		var size app.ByteSize
		f.Var(&size, "size", "the new size (required)")
		return func(cmd *cobra.Command, args []string) error {
			image, path, err := a.FileSpec(cmd, args[0])
			if err != nil {
				return err
			}
			if !size.Given {
				return app.Usagef(cmd, "no size, want --size N")
			}
			return a.OnFile(image, path, 0, func(_ *fs.FS, f *fs.File) error { return f.Truncate(a.Task, size.N) })
		}
	},
}, {
	use: "mv IMAGE:/from /to", short: "rename or move within an image", args: cobra.ExactArgs(2), paths: true,
	long: `Mv renames a file or directory and replaces what has the new name, as rename(2). Into a directory that exists it keeps its name.
A subvolume moves as well, also into another one. A file or a directory stays in its subvolume: reflink the file there
and rm it.`,
	example: `  btrlab mv disk.img:/draft.txt /final.txt
  btrlab mv disk.img:/@ /@old`,
	verb: func(a verbs, _ *pflag.FlagSet) run {
		return func(cmd *cobra.Command, args []string) error {
			image, from, to, err := a.TwoPaths(cmd, args)
			if err != nil {
				return err
			}
			return a.WriteFS(image, func(x *fs.FS) error { return app.InImage(image, from, script.Move(a.Task, x, from, to)) })
		}
	},
}, {
	use: "ln IMAGE:/target /name", short: "give a file a second name, or make a symbolic link with -s", args: cobra.ExactArgs(2),
	example: `  btrlab ln disk.img:/a /b
  btrlab ln -s ../lib disk.img:/usr/lib`,
	verb: func(a verbs, f *pflag.FlagSet) run {
		symbolic := f.BoolP("symbolic", "s", false, "symbolic link: TARGET IMAGE:/name, where TARGET is any text")
		return func(cmd *cobra.Command, args []string) error {
			if *symbolic {
				image, name, err := a.FileSpec(cmd, args[1])
				if err != nil {
					return err
				}
				return a.WriteFS(image, func(x *fs.FS) error {
					return app.InImage(image, name, x.Symlink(a.Task, args[0], script.IntoDir(a.Task, x, args[0], name)))
				})
			}
			image, old, name, err := a.TwoPaths(cmd, args)
			if err != nil {
				return err
			}
			return a.WriteFS(image, func(x *fs.FS) error {
				return app.InImage(image, name, x.Link(a.Task, old, script.IntoDir(a.Task, x, old, name)))
			})
		}
	},
}, {
	use: "snapshot [-r] IMAGE:/subvolume /name", short: "make a snapshot of a subvolume", args: cobra.ExactArgs(2), paths: true,
	long: `Snapshot makes /name a subvolume with the contents of another, as btrfs subvolume snapshot: they share all blocks until
one of the two changes. Into a directory that exists it keeps its name; the top-level subvolume is IMAGE:/.`,
	example: `  btrlab snapshot disk.img:/ /before
  btrlab snapshot -r disk.img:/home /backup/home`,
	verb: func(a verbs, f *pflag.FlagSet) run {
		readOnly := f.BoolP("readonly", "r", false, "make a snapshot that takes no writes")
		return func(cmd *cobra.Command, args []string) error {
			image, from, to, err := a.TwoPaths(cmd, args)
			if err != nil {
				return err
			}
			return a.WriteFS(image, func(x *fs.FS) error {
				if a.Open != nil && a.Open.Snapshots != nil {
					return a.Open.Snapshots.Add(x, image, from, to, *readOnly)
				}
				to := to
				if from != "/" {
					to = script.IntoDir(a.Task, x, from, to)
				}
				return app.InImage(image, to, x.Snapshot(a.Task, from, to, *readOnly))
			})
		}
	},
}}

// giveAway changes the owner of path, and takes setuid and setgid away from what is no directory.
// Models chown_common().
func (a verbs) giveAway(x *fs.FS, path string, own fs.Owner) error {
	at, err := x.Stat(a.Task, path)
	if err != nil {
		return err
	}
	if err := x.Chown(a.Task, path, own.UID, own.GID); err != nil || at.IsDir() {
		return err
	}
	mode := at.Mode & 0o7777 &^ 0o4000
	if mode&0o010 != 0 { // setgid without it is a mandatory lock, which stays
		mode &^= 0o2000
	}
	if mode == at.Mode&0o7777 {
		return nil
	}
	return x.Chmod(a.Task, path, mode)
}

// parseDevice reads b|c|p|s, and for a device its numbers.
func parseDevice(cmd *cobra.Command, args []string) (kind uint32, rdev uint64, err error) {
	kind, ok := map[string]uint32{"b": format.S_IFBLK, "c": format.S_IFCHR, "p": format.S_IFIFO, "s": format.S_IFSOCK}[args[0]]
	device := args[0] == "b" || args[0] == "c"
	err = app.Check(cmd,
		app.Not(!ok, "type %q, want b, c, p or s", args[0]),
		app.Not(device != (len(args) == 3), "type %s with %d numbers, want MAJOR and MINOR for a device, and none else", args[0], len(args)-1))
	if err != nil || !device {
		return kind, 0, err
	}
	major, merr := strconv.ParseUint(args[1], 10, 12)
	minor, nerr := strconv.ParseUint(args[2], 10, 20)
	if merr != nil || nerr != nil {
		return 0, 0, app.Usagef(cmd, "device %s %s, want a major number to 4095 and a minor to 1048575", args[1], args[2])
	}
	return kind, major<<20 | minor, nil
}

// namespaces are the prefixes of the names of extended attributes.
var namespaces = []string{"user", "trusted", "security", "system", "btrfs"}
