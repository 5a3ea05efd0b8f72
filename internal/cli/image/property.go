package image

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

// property is a property of btrfs property.
type property struct {
	name, about string
	// of reports whether the object at path has such a property.
	of func(n *fs.Node, at *fs.Attr, path string) bool
	// get gives the value, "" and false when it has none.
	get func(a verbs, x *fs.FS, n *fs.Node) (value string, ok bool, err error)
	// check says what is wrong with a value, or "".
	check func(value string) string
	set   func(a verbs, x *fs.FS, n *fs.Node, value string) error
}

// properties are those of btrfs property, in its order.
var properties = []property{
	{
		name: "ro", about: "whether a subvolume is read-only: true, false",
		of: func(_ *fs.Node, at *fs.Attr, _ string) bool { return at.Ino == format.FIRST_FREE_OBJECTID },
		get: func(_ verbs, _ *fs.FS, n *fs.Node) (string, bool, error) {
			return strconv.FormatBool(n.ReadOnly()), true, nil
		},
		check: func(value string) string {
			if value != "true" && value != "false" {
				return "true or false"
			}
			return ""
		},
		set: func(a verbs, _ *fs.FS, n *fs.Node, value string) error { return n.SetReadOnly(a.Task, value == "true") },
	},
	{
		name: "label", about: "label of the file system, at its top",
		of:  func(_ *fs.Node, _ *fs.Attr, path string) bool { return path == "/" },
		get: func(a verbs, x *fs.FS, _ *fs.Node) (string, bool, error) { return x.Statfs(a.Task).Label, true, nil },
		check: func(value string) string {
			if !format.LabelOK(value) {
				return "at most 255 bytes without newline"
			}
			return ""
		},
		set: func(a verbs, x *fs.FS, _ *fs.Node, value string) error { return x.SetLabel(a.Task, value) },
	},
	{
		name: "compression", about: "how data of a file, or of what is made in a directory, is compressed: zlib, lzo, zstd; none; \"\" is the default",
		of: func(_ *fs.Node, at *fs.Attr, _ string) bool { return at.IsDir() || at.IsRegular() },
		get: func(a verbs, _ *fs.FS, n *fs.Node) (string, bool, error) {
			value, err := n.Getxattr(a.Task, fs.Compression)
			if errors.Is(err, errno.ENOENT) {
				return "", false, nil
			}
			return string(value), err == nil, err
		},
		check: func(value string) string {
			if _, ok := compress.Property(value); !ok {
				return `zlib, lzo, zstd, none or ""`
			}
			return ""
		},
		set: func(a verbs, _ *fs.FS, n *fs.Node, value string) error {
			return n.Setxattr(a.Task, fs.Compression, []byte(value))
		},
	},
}

// propertyOf finds a property by its name.
func propertyOf(cmd *cobra.Command, name string) (property, error) {
	i := slices.IndexFunc(properties, func(p property) bool { return p.name == name })
	if i < 0 {
		return property{}, app.Usagef(cmd, "property %q, want ro, label or compression", name)
	}
	return properties[i], nil
}

func (a verbs) property() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "property",
		Short: "show and set properties of files, subvolumes and the image",
		Long:  "Property has the names of btrfs property. " + propertyNames() + ".",
		Example: `  btrlab property set disk.img:/backup compression zstd
  btrlab property get disk.img:/backup
  btrlab property set disk.img:/before ro false
  btrlab property set -f disk.img:/backup/monday ro false`,
	}
	cmd.AddCommand(a.propertyGet(), a.propertySet(), a.propertyList())
	return cmd
}

func propertyNames() string {
	var list []string
	for _, p := range properties {
		list = append(list, p.name+": "+p.about)
	}
	return strings.Join(list, "; ")
}

// node lets f have what path names, with its attributes.
func (a verbs) node(x *fs.FS, path string, f func(n *fs.Node, at *fs.Attr) error) error {
	n, err := x.NodeAt(a.Task, path)
	if err != nil {
		return err
	}
	defer n.Forget(a.Task, 1)
	at := n.Attr(a.Task)
	return f(n, &at)
}

func (a verbs) propertyGet() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "get IMAGE:/path [NAME]",
		Short:   "show the properties that are set, or one",
		Example: "  btrlab property get disk.img:/backup compression",
		Args:    cobra.RangeArgs(1, 2),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want := properties
		if len(args) == 2 {
			p, err := propertyOf(cmd, args[1])
			if err != nil {
				return err
			}
			want = []property{p}
		}
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		values := map[string]string{}
		err = a.ReadFS(image, func(x *fs.FS) error {
			return app.InImage(image, path, a.node(x, path, func(n *fs.Node, at *fs.Attr) error {
				for _, p := range want {
					if !p.of(n, at, path) {
						if len(args) == 2 {
							return fmt.Errorf("has no property %s", p.name)
						}
						continue
					}
					value, ok, err := p.get(a, x, n)
					if err != nil {
						return err
					}
					if ok {
						values[p.name] = value
					}
				}
				return nil
			}))
		})
		if err != nil {
			return err
		}
		if asJSON {
			return a.PrintJSON(values)
		}
		for _, p := range want {
			if value, ok := values[p.name]; ok {
				fmt.Fprintf(a.Out, "%s=%s\n", p.name, app.Shown(a.Out, value))
			}
		}
		return nil
	}
	return cmd
}

func (a verbs) propertySet() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "set IMAGE:/path NAME VALUE",
		Short: "set a property",
		Long: `Set gives a file, a subvolume or the top a property. A subvolume that was received is read-only, because the next difference
of its sender needs it as it is; a snapshot of it can be changed. With --force, ro false makes it one that was not received, as btrfs property set -f
does: no difference applies to it any more.`,
		Example: `  btrlab property set disk.img:/backup compression zstd
  btrlab property set --force disk.img:/before ro false`,
		Args: cobra.ExactArgs(3),
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "ro false also of a received subvolume, which is none then")
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := propertyOf(cmd, args[1])
		if err != nil {
			return err
		}
		if force && p.name != "ro" {
			return app.Usagef(cmd, "--force is for ro, have %s", p.name)
		}
		if want := p.check(args[2]); want != "" {
			return app.Usagef(cmd, "%s %q, want %s", p.name, args[2], want)
		}
		return a.EachImage(cmd, args[:1], func(x *fs.FS, path string) error {
			return a.node(x, path, func(n *fs.Node, at *fs.Attr) error {
				if !p.of(n, at, path) {
					return fmt.Errorf("has no property %s", p.name)
				}
				if force && args[2] == "false" && n.ReadOnly() {
					was, err := n.Received(a.Task)
					if err != nil {
						return err
					}
					if was {
						return n.Unreceive(a.Task)
					}
				}
				err := p.set(a, x, n, args[2])
				if p.name == "ro" && errors.Is(err, errno.EPERM) {
					err = fmt.Errorf("%w; --force makes it one that was not received", err)
				}
				return err
			})
		})
	}
	return cmd
}

func (a verbs) propertyList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list IMAGE:/path",
		Short:   "list the properties that a file, a subvolume or the top can have",
		Example: "  btrlab property list disk.img:/",
		Args:    cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		return a.ReadFS(image, func(x *fs.FS) error {
			return app.InImage(image, path, a.node(x, path, func(n *fs.Node, at *fs.Attr) error {
				for _, p := range properties {
					if p.of(n, at, path) {
						fmt.Fprintf(a.Out, "%-12s %s\n", p.name, p.about)
					}
				}
				return nil
			}))
		})
	}
	return cmd
}
