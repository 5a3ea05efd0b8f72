package image

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	gopath "path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/compress"
	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

// putting is the verb put, with its flags.
type putting struct {
	verbs
	cmd                       *cobra.Command
	recursive, nocow, verbose bool
	rootOwner                 bool
	keep                      keepFlags
	owner, fromTar, method    string
	ownerFrom, fromCpio       string
	exclude                   []string

	sources     []string
	image, dest string
	own         *fs.Owner
	skip        transfer.Exclude
	how         compress.Method
}

func (a verbs) put() *cobra.Command {
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
links and devices; blocks of zeros become holes. With --from-cpio it is a cpio archive.`,
		Example: `  btrlab put notes.txt disk.img:/
  btrlab put -r /usr/share/doc disk.img:/doc
  btrlab put -r --root-owner rootfs/. disk.img:/
  btrlab put -r --compress zstd:9 src disk.img:/
  tar c --xattrs -C rootfs . | btrlab put --from-tar - disk.img:/
  btrlab put --from-cpio initrd.cpio disk.img:/
  date | btrlab put - disk.img:/now`,
		Args: cobra.MinimumNArgs(1),
	}
	v := &putting{verbs: a, cmd: cmd}
	v.flags()
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := v.parse(args); err != nil {
			return err
		}
		return a.WriteFS(v.image, v.run)
	}
	a.SmallCacheFlag(cmd, 64<<20)
	app.ProfileFlags(a.Run, cmd, true)
	return cmd
}

func (v *putting) flags() {
	f := v.cmd.Flags()
	f.BoolVarP(&v.recursive, "recursive", "r", false, "copy directories with everything below")
	f.BoolVar(&v.nocow, "nocow", false, "make new files NOCOW, as chattr +C")
	f.StringVar(&v.method, "compress", "", "compress with zlib[:1-9], lzo or zstd[:1-15]; the default level is 3")
	f.BoolVarP(&v.verbose, "verbose", "v", false, "print each name")
	f.StringVar(&v.owner, "owner", "", "give everything this owner, as UID:GID, whatever the host has")
	f.StringVar(&v.ownerFrom, "owner-from", "", "with -r: "+ownerFromHelp)
	f.BoolVar(&v.rootOwner, "root-owner", false, "--owner 0:0")
	f.StringVar(&v.fromTar, "from-tar", "", "put what is in this tar archive; - is standard input")
	f.StringVar(&v.fromCpio, "from-cpio", "", "put what is in this cpio archive (newc, crc, odc); - is standard input")
	f.StringArrayVar(&v.exclude, "exclude", nil, excludeHelp)
	v.keep.add(f)
}

// parse checks the arguments and the flags.
func (v *putting) parse(args []string) (err error) {
	v.sources = args[:len(args)-1]
	if err := app.Check(v.cmd, app.Excludes("from-tar", "from-cpio", "--from-tar with --from-cpio, want one of them")); err != nil {
		return err
	}
	if (v.fromTar != "" || v.fromCpio != "") == (len(v.sources) > 0) {
		return app.Usagef(v.cmd, "%d sources, want some, or --from-tar or --from-cpio and none", len(v.sources))
	}
	if v.image, v.dest, err = v.FileSpec(v.cmd, args[len(args)-1]); err != nil {
		return err
	}
	if v.rootOwner && v.owner == "" {
		v.owner = "0:0"
	}
	if v.own, err = parseOwner(v.owner); err != nil {
		return app.Usagef(v.cmd, "%v", err)
	}
	if v.skip, err = transfer.ParseExclude(v.exclude); err != nil {
		return app.Usagef(v.cmd, "%v", err)
	}
	if err := app.Check(v.cmd, app.NotEmpty("owner-from", "--%s is empty, want a name"), app.Needs("exclude", "recursive", "--exclude without -r"), app.Needs("owner-from", "recursive", "--owner-from without -r"),
		app.Excludes("owner-from", "owner root-owner no-owner", "--%s with another word about owners, want one of them")); err != nil {
		return err
	}
	if v.method != "" {
		if v.how, err = compress.Parse(v.method); err != nil {
			return app.Usagef(v.cmd, "%v", err)
		}
	}
	if err := app.Check(v.cmd, app.Excludes("compress", "nocow", "--compress with --nocow: NOCOW files are not compressed")); err != nil {
		return err
	}
	return v.checkSources()
}

// checkSources says which source is not there, or is a directory without -r.
func (v *putting) checkSources() error {
	for _, s := range v.sources {
		if s == "-" {
			continue
		}
		st, err := os.Stat(s)
		if err != nil {
			return err
		}
		if st.IsDir() && !v.recursive {
			return app.Usagef(v.cmd, "%s is a directory, want -r", s)
		}
	}
	return nil
}

// run puts the sources into x.
func (v *putting) run(x *fs.FS) (err error) {
	w := &watcher{verbs: v.verbs, verb: "put", verbose: v.verbose, bar: v.NewBar("put", !v.verbose)}
	defer w.bar.Done()
	if v.how != (compress.Method{}) {
		if err := x.SetCompress(v.Task, v.how); err != nil {
			return err
		}
		defer func() {
			if cerr := x.SetCompress(v.Task, compress.Method{}); err == nil {
				err = cerr
			}
		}()
	}
	in := v.newIn(x, w)
	owners, err := v.ownersFrom(v.ownerFrom, v.recursive && v.own == nil && !v.keep.owner)
	if err != nil {
		return err
	}
	in.Fakeroot(owners)
	switch {
	case v.fromTar != "":
		err = app.InImage(v.image, v.dest, v.putArchive(in.Tar, v.fromTar, v.dest))
	case v.fromCpio != "":
		err = app.InImage(v.image, v.dest, v.putArchive(in.Cpio, v.fromCpio, v.dest))
	default:
		err = v.putAll(x, in)
		v.warnOwners(v.ownerFrom, owners)
	}
	if err != nil {
		return err
	}
	return w.allThere()
}

// newIn copies into x as the flags say.
func (v *putting) newIn(x *fs.FS, w *watcher) *transfer.In {
	in := transfer.NewIn(v.Task, x, w)
	in.Nocow, in.Keep, in.Owner, in.Exclude = v.nocow, v.keep.keep(transfer.All), v.own, v.skip
	if st, err := os.Stat(v.image); err == nil {
		in.Image = st
	}
	if now, err := app.SourceDate(); err == nil && now != nil {
		in.Date = now()
	}
	return in
}

// putAll puts the sources to dest, or into it if that is a directory.
func (v *putting) putAll(x *fs.FS, in *transfer.In) error {
	at, err := x.Stat(v.Task, v.dest)
	intoDir := err == nil && at.IsDir()
	if !intoDir && len(v.sources) > 1 {
		return app.InImage(v.image, v.dest, fmt.Errorf("%d sources, want an existing directory", len(v.sources)))
	}
	for _, s := range v.sources {
		to := v.dest
		fills := intoDir && (s == "." || strings.HasSuffix(s, "/."))
		if intoDir && !fills {
			if s == "-" {
				return app.InImage(v.image, v.dest, errors.New("is a directory, want a name for standard input"))
			}
			abs, err := filepath.Abs(s)
			if err != nil {
				return err
			}
			to = gopath.Join(v.dest, filepath.Base(abs))
		}
		switch {
		case s == "-":
			err = in.Reader(v.Stdin(), to)
		case fills:
			err = in.Fill(s, to)
		default:
			err = in.Tree(s, to)
		}
		if err != nil {
			return app.InImage(v.image, to, err)
		}
	}
	return nil
}

// putArchive puts what is in the archive at path.
func (a verbs) putArchive(put func(r io.Reader, to string) error, path, to string) error {
	if path == "-" {
		return put(a.Stdin(), to)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return put(bufio.NewReaderSize(f, 1<<20), to)
}
