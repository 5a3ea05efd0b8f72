package image

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

// statResult is stat --json.
type statResult struct {
	Path   string    `json:"path"`
	Ino    uint64    `json:"ino"`
	Type   string    `json:"type"`
	Mode   string    `json:"mode"`
	Nlink  uint32    `json:"nlink"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Rdev   uint64    `json:"rdev"`
	Size   uint64    `json:"size"`
	Nbytes uint64    `json:"nbytes"`
	Flags  []string  `json:"flags"`
	Gen    uint64    `json:"generation"`
	Atime  time.Time `json:"atime"`
	Mtime  time.Time `json:"mtime"`
	Ctime  time.Time `json:"ctime"`
	Otime  time.Time `json:"otime"`
	Target string    `json:"target,omitempty"`
}

var flagNames = []struct {
	bit  uint64
	name string
}{
	{format.InodeNoDataSum, "nodatasum"}, {format.InodeNoDataCow, "nodatacow"}, {format.InodeReadonly, "readonly"},
	{format.InodeNoCompress, "nocompress"}, {format.InodePrealloc, "prealloc"}, {format.InodeSync, "sync"},
	{format.InodeImmutable, "immutable"}, {format.InodeAppend, "append"}, {format.InodeNoDump, "nodump"},
	{format.InodeNoAtime, "noatime"}, {format.InodeDirSync, "dirsync"}, {format.InodeCompress, "compress"},
}

func (a verbs) stat() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "stat IMAGE:/path",
		Short:   "show the attributes of a file, not following a symbolic link",
		Example: "  btrlab stat disk.img:/etc/passwd",
		Args:    cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		var r statResult
		err = a.ReadFS(image, func(x *fs.FS) error {
			at, err := x.Lstat(a.Task, path)
			if err != nil {
				return app.InImage(image, path, err)
			}
			r = statResult{path, uint64(at.Ino), typeWord(at.Mode), fmt.Sprintf("%04o", at.Mode&0o7777), at.Nlink, at.UID, at.GID,
				at.Rdev, at.Size, at.Nbytes, []string{}, at.Generation, at.Atime.UTC(), at.Mtime.UTC(), at.Ctime.UTC(), at.Otime.UTC(), ""}
			for _, f := range flagNames {
				if at.Flags&f.bit != 0 {
					r.Flags = append(r.Flags, f.name)
				}
			}
			if at.IsSymlink() {
				r.Target, err = x.Readlink(a.Task, path)
			}
			return app.InImage(image, path, err)
		})
		if err != nil {
			return err
		}
		if asJSON {
			return a.PrintJSON(r)
		}
		name := r.Path
		if r.Target != "" {
			name += " -> " + r.Target
		}
		flags := strings.Join(r.Flags, ",")
		if flags == "" {
			flags = "none"
		}
		const layout = "2006-01-02 15:04:05.000000000 -0700"
		_, err = fmt.Fprintf(a.Out, `  file: %s
  type: %s, mode %s, links %d, uid %d, gid %d
 inode: %d, generation %d, flags %s
  size: %d, allocated %d
access: %s
modify: %s
change: %s
 birth: %s
`, app.Shown(a.Out, name), r.Type, r.Mode, r.Nlink, r.UID, r.GID, r.Ino, r.Gen, flags, r.Size, r.Nbytes,
			r.Atime.Format(layout), r.Mtime.Format(layout), r.Ctime.Format(layout), r.Otime.Format(layout))
		return err
	}
	return cmd
}
