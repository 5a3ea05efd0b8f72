package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	gopath "path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/compress"
	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a *app) put() *cobra.Command {
	var recursive, nocow, verbose, rootOwner bool
	var keep keepFlags
	var owner, fromTar, method string
	var exclude []string
	cmd := &cobra.Command{
		Use:   "put SOURCE... IMAGE:/path | put --from-tar FILE IMAGE:/path",
		Short: "copy files or trees of the host into an image",
		Long: `Put copies files into an image; SOURCE - is standard input. With -r it copies trees: files with their holes and
hard links, symbolic links, directories, devices, pipes and sockets, with owners, modes, times, extended attributes (access control
lists and capabilities are such) and the flags of chattr. Owners are those of the host, whoever runs this; without them setuid, setgid and
capabilities go, too. Into a directory that exists the copy keeps its name, but SOURCE/. fills it and gives it the attributes of
SOURCE: / as well; otherwise, with one SOURCE, /path is its new name. With --compress file data is compressed in pieces of 128 KiB, where
that saves a block. What cannot be put is left out with a message, and the exit code is
1. What was put before an interrupt or an error is committed.

With --from-tar the source is a tar archive, - is standard input, whose entries go below /path: with owners, nanoseconds, extended attributes,
links and devices; blocks of zeros become holes.`,
		Example: `  btrlab put notes.txt disk.img:/
  btrlab put -r /usr/share/doc disk.img:/doc
  btrlab put -r --root-owner rootfs/. disk.img:/
  btrlab put -r --compress zstd:9 src disk.img:/
  tar c --xattrs -C rootfs . | btrlab put --from-tar - disk.img:/
  date | btrlab put - disk.img:/now`,
		Args: cobra.MinimumNArgs(1),
	}
	f := cmd.Flags()
	f.BoolVarP(&recursive, "recursive", "r", false, "copy directories with everything below")
	f.BoolVar(&nocow, "nocow", false, "make new files NOCOW, as chattr +C")
	f.StringVar(&method, "compress", "", "compress with zlib[:1-9], lzo or zstd[:1-15]; the default level is 3")
	f.BoolVarP(&verbose, "verbose", "v", false, "print each name")
	f.StringVar(&owner, "owner", "", "give everything this owner, as UID:GID, whatever the host has")
	f.BoolVar(&rootOwner, "root-owner", false, "--owner 0:0")
	f.StringVar(&fromTar, "from-tar", "", "put what is in this tar archive; - is standard input")
	f.StringArrayVar(&exclude, "exclude", nil, excludeHelp)
	keep.add(f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sources := args[:len(args)-1]
		if (fromTar != "") == (len(sources) > 0) {
			return usagef(cmd, "%d sources, want some, or --from-tar and none", len(sources))
		}
		image, dest, err := a.fileSpec(cmd, args[len(args)-1])
		if err != nil {
			return err
		}
		if rootOwner && owner == "" {
			owner = "0:0"
		}
		own, err := parseOwner(owner)
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		skip, err := transfer.ParseExclude(exclude)
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		if len(skip) > 0 && !recursive {
			return usagef(cmd, "--exclude without -r")
		}
		var how compress.Method
		if method != "" {
			if how, err = compress.Parse(method); err != nil {
				return usagef(cmd, "%v", err)
			}
			if nocow {
				return usagef(cmd, "--compress with --nocow: NOCOW files are not compressed")
			}
		}
		for _, s := range sources {
			if s == "-" {
				continue
			}
			st, err := os.Stat(s)
			if err != nil {
				return err
			}
			if st.IsDir() && !recursive {
				return usagef(cmd, "%s is a directory, want -r", s)
			}
		}
		return a.writeFS(image, func(x *fs.FS) (err error) {
			w := &watcher{app: a, verb: "put", verbose: verbose, bar: a.newBar("put", !verbose)}
			defer w.bar.done()
			if how != (compress.Method{}) {
				if err := x.SetCompress(a.t, how); err != nil {
					return err
				}
				defer func() {
					if cerr := x.SetCompress(a.t, compress.Method{}); err == nil {
						err = cerr
					}
				}()
			}
			in := transfer.NewIn(a.t, x, w)
			in.Nocow, in.Keep, in.Owner, in.Exclude = nocow, keep.keep(transfer.All), own, skip
			if st, err := os.Stat(image); err == nil {
				in.Image = st
			}
			if now, err := sourceDate(); err == nil && now != nil {
				in.Date = now()
			}
			if fromTar != "" {
				if err := a.putTar(in, fromTar, dest); err != nil {
					return inImage(image, dest, err)
				}
				return w.allThere()
			}
			at, err := x.Stat(a.t, dest)
			intoDir := err == nil && at.IsDir()
			if !intoDir && len(sources) > 1 {
				return inImage(image, dest, fmt.Errorf("%d sources, want an existing directory", len(sources)))
			}
			for _, s := range sources {
				to := dest
				fills := intoDir && (s == "." || strings.HasSuffix(s, "/."))
				if intoDir && !fills {
					if s == "-" {
						return inImage(image, dest, errors.New("is a directory, want a name for standard input"))
					}
					abs, err := filepath.Abs(s)
					if err != nil {
						return err
					}
					to = gopath.Join(dest, filepath.Base(abs))
				}
				if s == "-" {
					err = in.Reader(a.stdin(), to)
				} else if fills {
					err = in.Fill(s, to)
				} else {
					err = in.Tree(s, to)
				}
				if err != nil {
					return inImage(image, to, err)
				}
			}
			return w.allThere()
		})
	}
	a.smallCacheFlag(cmd, 64<<20)
	return cmd
}

// putTar puts what is in the archive at path.
func (a *app) putTar(in *transfer.In, path, to string) error {
	if path == "-" {
		return in.Tar(a.stdin(), to)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return in.Tar(bufio.NewReaderSize(f, 1<<20), to)
}
