package image

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	gopath "path"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

// lsEntry is one line of ls --json.
type lsEntry struct {
	Path   string    `json:"path"`
	Ino    uint64    `json:"ino"`
	Type   string    `json:"type"`
	Mode   string    `json:"mode"`
	Nlink  uint32    `json:"nlink"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Size   uint64    `json:"size"`
	Mtime  time.Time `json:"mtime"`
	Target string    `json:"target,omitempty"`
}

func (a verbs) ls() *cobra.Command {
	var long, recursive, null, asJSON bool
	cmd := &cobra.Command{
		Use:   "ls IMAGE[:/path]",
		Short: "list a directory",
		Example: `  btrlab ls -l disk.img:/etc
  btrlab ls -R -0 disk.img | grep -z '[.]conf$'`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().BoolVarP(&long, "long", "l", false, "show mode, links, owner, size and time")
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "list everything below, as paths")
	cmd.Flags().BoolP("all", "a", true, "names that begin with a dot: they are always listed")
	cmd.Flags().BoolVarP(&null, "null", "0", false, "end each name with a NUL, as find -print0, and escape nothing")
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.Check(cmd, app.Excludes("null", "long json", "--null with --long or --json")); err != nil {
			return err
		}
		image, path, _ := a.SplitSpec(args[0])
		w := bufio.NewWriterSize(a.Out, 64<<10)
		var all []lsEntry
		err := a.ReadFS(image, func(x *fs.FS) error {
			show := func(full string, e fs.DirEntry) error {
				name := e.Name
				if recursive {
					name = full
				}
				if null {
					_, err := w.WriteString(name + "\x00")
					return err
				}
				if !long && !asJSON {
					_, err := fmt.Fprintln(w, app.Shown(a.Out, name))
					return err
				}
				le, err := a.lsEntry(x, name, full, e)
				if err != nil {
					return err
				}
				if asJSON {
					all = append(all, le)
					return nil
				}
				return a.printLong(w, le)
			}
			return app.InImage(image, path, a.list(x, path, recursive, show))
		})
		if ferr := w.Flush(); err == nil {
			err = ferr
		}
		if err != nil {
			return err
		}
		if asJSON {
			if all == nil {
				all = []lsEntry{}
			}
			return a.PrintJSON(all)
		}
		return nil
	}
	a.CacheFlag(cmd)
	return cmd
}

// list calls show, with the absolute path, for path itself, or for each name in it when it is a
// directory.
func (a verbs) list(x *fs.FS, path string, recursive bool, show func(full string, e fs.DirEntry) error) error {
	at, err := x.Stat(a.Task, path)
	if err != nil {
		return err
	}
	if !at.IsDir() {
		return show(path, fs.DirEntry{Name: path, Ino: at.Ino})
	}
	entries, err := x.ReadDir(a.Task, path)
	if err != nil {
		return err
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	for _, e := range entries {
		if err := a.Interrupted(); err != nil {
			return err
		}
		full := gopath.Join(path, e.Name)
		if err := show(full, e); err != nil {
			return err
		}
		if recursive && e.Type == format.FtDir {
			// A subvolume's name in a snapshot of its parent leads nowhere: an empty directory in
			// Linux.
			if err := a.list(x, full, true, show); err != nil && !(e.Subvol != 0 && errors.Is(err, errno.ENOENT)) {
				return err
			}
		}
	}
	return nil
}

func (a verbs) lsEntry(x *fs.FS, name, full string, e fs.DirEntry) (lsEntry, error) {
	at, err := x.Lstat(a.Task, full)
	if e.Subvol != 0 && errors.Is(err, errno.ENOENT) {
		return lsEntry{Path: name, Ino: uint64(e.Ino), Type: "subvolume", Mode: "d---------"}, nil
	}
	if err != nil {
		return lsEntry{}, err
	}
	le := lsEntry{name, uint64(at.Ino), typeWord(at.Mode), modeString(at.Mode), at.Nlink, at.UID, at.GID, at.Size, at.Mtime.UTC(), ""}
	if e.Subvol != 0 {
		le.Type = "subvolume"
	}
	if at.IsSymlink() {
		le.Target, err = x.Readlink(a.Task, full)
	}
	return le, err
}

func (a verbs) printLong(w io.Writer, e lsEntry) error {
	name := e.Path
	if e.Target != "" {
		name += " -> " + e.Target
	}
	_, err := fmt.Fprintf(w, "%s %3d %5d %5d %12d %s %s\n", e.Mode, e.Nlink, e.UID, e.GID, e.Size,
		e.Mtime.UTC().Format("2006-01-02 15:04:05"), app.Shown(a.Out, name))
	return err
}

// modeString gives "drwxr-xr-x".
func modeString(mode uint32) string {
	var b strings.Builder
	b.WriteByte(typeChar(mode))
	const rwx = "rwxrwxrwx"
	for i := range 9 {
		if mode&(1<<(8-i)) != 0 {
			b.WriteByte(rwx[i])
		} else {
			b.WriteByte('-')
		}
	}
	s := []byte(b.String())
	for _, x := range []struct {
		bit  uint32
		at   int
		char byte
	}{{0o4000, 3, 's'}, {0o2000, 6, 's'}, {0o1000, 9, 't'}} {
		if mode&x.bit == 0 {
			continue
		}
		if s[x.at] == 'x' {
			s[x.at] = x.char
		} else {
			s[x.at] = x.char - 'a' + 'A'
		}
	}
	return string(s)
}

// kinds are the types of files: the letter of ls and the word of stat.
var kinds = []struct {
	mode uint32
	char byte
	word string
}{
	{format.S_IFREG, '-', "file"}, {format.S_IFDIR, 'd', "directory"}, {format.S_IFLNK, 'l', "symlink"},
	{format.S_IFCHR, 'c', "character device"}, {format.S_IFBLK, 'b', "block device"},
	{format.S_IFIFO, 'p', "fifo"}, {format.S_IFSOCK, 's', "socket"},
}

func typeChar(mode uint32) byte {
	for _, k := range kinds {
		if mode&format.S_IFMT == k.mode {
			return k.char
		}
	}
	return '?'
}

func typeWord(mode uint32) string {
	for _, k := range kinds {
		if mode&format.S_IFMT == k.mode {
			return k.word
		}
	}
	return fmt.Sprintf("unknown (%#o)", mode&format.S_IFMT)
}
