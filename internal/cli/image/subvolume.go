package image

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

func (a verbs) subvolume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "subvolume",
		Short: "make, delete and list subvolumes",
		Long:  "Subvolume makes and deletes subvolumes and lists them. The verb snapshot makes a copy of one.",
		Example: `  btrlab subvolume create disk.img:/home
  btrlab subvolume list disk.img
  btrlab subvolume delete disk.img:/before`,
	}
	create := &cobra.Command{
		Use:     "create IMAGE:/path...",
		Short:   "make empty subvolumes",
		Example: "  btrlab subvolume create disk.img:/home",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachImage(cmd, args, func(x *fs.FS, path string) error { return x.Subvolume(a.Task, path, 0o755) })
		},
	}
	remove := &cobra.Command{
		Use:   "delete IMAGE:/path...",
		Short: "delete subvolumes and snapshots with all that is in them",
		Long: `Delete takes the name away and commits; then it drops the tree, some thousand extents in each transaction. After a crash in
between, the next verb that writes, or a mount in Linux, goes on. A subvolume in the one to be deleted must be deleted first.`,
		Example: "  btrlab subvolume delete disk.img:/before",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachImage(cmd, args, func(x *fs.FS, path string) error {
				err := x.DeleteSubvolume(a.Task, path)
				if errors.Is(err, errno.ENOTEMPTY) {
					if nested := a.nestedSubvolume(x, path); nested != nil {
						err = fmt.Errorf("%w: %w", nested, err)
					}
				}
				return err
			})
		},
	}
	create.ValidArgsFunction, remove.ValidArgsFunction = a.CompleteSpec, a.CompleteSpec
	cmd.AddCommand(create, remove, a.subvolumeList(), a.subvolumeDefault(), a.setDefault())
	return cmd
}

// subvolumeEntry is one line of subvolume list --json.
type subvolumeEntry struct {
	ID         uint64 `json:"id"`
	Generation uint64 `json:"generation"`
	Parent     uint64 `json:"parent"`
	ReadOnly   bool   `json:"readonly"`
	UUID       string `json:"uuid"`
	ParentUUID string `json:"parent_uuid,omitempty"`
	Received   string `json:"received_uuid,omitempty"`
	Path       string `json:"path"`
	Default    bool   `json:"default"`
}

// subvolumeDefault shows the subvolume that a mount shows which names none.
func (a verbs) subvolumeDefault() *cobra.Command {
	return &cobra.Command{
		Use:     "get-default IMAGE",
		Short:   "show the id of the subvolume that a mount, and every verb here, opens",
		Example: "  btrlab subvolume get-default disk.img",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			image, _, _ := a.SplitSpec(args[0])
			return a.ReadFS(image, func(x *fs.FS) error {
				id, err := x.DefaultSubvolume(a.Task)
				if err == nil {
					_, err = fmt.Fprintln(a.Out, id)
				}
				return app.Named(image, err)
			})
		},
	}
}

func (a verbs) setDefault() *cobra.Command {
	return &cobra.Command{
		Use:   "set-default IMAGE:/path | IMAGE ID",
		Short: "choose the subvolume that a mount, and every verb here, opens",
		Long:  "Set-default takes the subvolume's path, or its id; 5 is the top level, which has all others. --subvol opens another one for once.",
		Example: `  btrlab subvolume set-default disk.img:/@
  btrlab subvolume set-default disk.img 5`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			image, path, isPath := a.SplitSpec(args[0])
			var id uint64
			if isPath == (len(args) == 2) {
				return app.Usagef(cmd, "want IMAGE:/path, or IMAGE and an id")
			}
			if !isPath {
				var err error
				if id, err = strconv.ParseUint(args[1], 10, 64); err != nil {
					return app.Usagef(cmd, "id %q, want a number", args[1])
				}
			}
			return a.WriteFS(image, func(x *fs.FS) error {
				if isPath {
					at, err := x.Stat(a.Task, path)
					if err == nil && at.Ino != format.FIRST_FREE_OBJECTID {
						err = errors.New("is no subvolume")
					}
					if err != nil {
						return app.InImage(image, path, err)
					}
					id = at.Subvol
				}
				if err := x.SetDefaultSubvolume(a.Task, id); err != nil {
					return app.Named(image, fmt.Errorf("subvolume %d: %w", id, err))
				}
				return nil
			})
		},
	}
}

func (a verbs) subvolumeList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list IMAGE",
		Short:   "list all subvolumes and snapshots of an image",
		Example: "  btrlab subvolume list disk.img",
		Args:    cobra.ExactArgs(1),
	}
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, _, _ := a.SplitSpec(args[0])
		all := []subvolumeEntry{}
		err := a.ReadFS(image, func(x *fs.FS) error {
			list, err := x.Subvolumes(a.Task)
			if err != nil {
				return err
			}
			id, err := x.DefaultSubvolume(a.Task)
			for _, s := range list {
				e := subvolumeEntry{ID: s.ID, Generation: s.Generation, Parent: s.Parent, ReadOnly: s.ReadOnly, UUID: s.UUID.String(), Path: s.Path, Default: s.ID == id}
				if s.Snapshot() {
					e.ParentUUID = s.ParentUUID.String()
				}
				if !s.ReceivedUUID.IsZero() {
					e.Received = s.ReceivedUUID.String()
				}
				all = append(all, e)
			}
			return err
		})
		if err != nil {
			return err
		}
		if asJSON {
			return a.PrintJSON(all)
		}
		for _, e := range all {
			kind := "subvolume"
			switch {
			case e.ParentUUID != "" && e.ReadOnly:
				kind = "read-only snapshot"
			case e.ParentUUID != "":
				kind = "snapshot"
			case e.ReadOnly:
				kind = "read-only subvolume"
			}
			if e.Default {
				kind += ", default"
			}
			if _, err := fmt.Fprintf(a.Out, "%d generation %d in %d: %s, %s\n", e.ID, e.Generation, e.Parent, app.Shown(a.Out, e.Path), kind); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
