package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
)

func (a *app) subvolume() *cobra.Command {
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
			return a.eachImage(cmd, args, func(x *fs.FS, path string) error { return x.Subvolume(a.t, path, 0o755) })
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
			return a.eachImage(cmd, args, func(x *fs.FS, path string) error {
				err := x.DeleteSubvolume(a.t, path)
				if errors.Is(err, errno.ENOTEMPTY) {
					if nested := a.nestedSubvolume(x, path); nested != nil {
						err = fmt.Errorf("%w: %w", nested, err)
					}
				}
				return err
			})
		},
	}
	create.ValidArgsFunction, remove.ValidArgsFunction = a.completeSpec, a.completeSpec
	cmd.AddCommand(create, remove, a.subvolumeList())
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
	Path       string `json:"path"`
}

func (a *app) subvolumeList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list IMAGE",
		Short:   "list all subvolumes and snapshots of an image",
		Example: "  btrlab subvolume list disk.img",
		Args:    cobra.ExactArgs(1),
	}
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, _, _ := a.splitSpec(args[0])
		all := []subvolumeEntry{}
		err := a.readFS(image, func(x *fs.FS) error {
			list, err := x.Subvolumes(a.t)
			for _, s := range list {
				e := subvolumeEntry{ID: s.ID, Generation: s.Generation, Parent: s.Parent, ReadOnly: s.ReadOnly, UUID: s.UUID.String(), Path: s.Path}
				if s.Snapshot() {
					e.ParentUUID = s.ParentUUID.String()
				}
				all = append(all, e)
			}
			return err
		})
		if err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(all)
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
			if _, err := fmt.Fprintf(a.out, "%d generation %d in %d: %s, %s\n", e.ID, e.Generation, e.Parent, shown(a.out, e.Path), kind); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
