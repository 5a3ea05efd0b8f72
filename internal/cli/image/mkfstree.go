package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	gopath "path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/compress"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/transfer"
)

// treeFlags say with what mkfs fills a file system.
type treeFlags struct {
	rootdir, fromTar  string
	fromCpio          string
	from              string
	snapshots         bool
	plan, table       string
	compress, owner   string
	ownerFrom         string
	exclude, subvols  []string
	rootOwner, shrink bool
	verbose           bool
	keep              keepFlags

	own     *fs.Owner
	skip    transfer.Exclude
	scanner *transfer.Scan
	w       *watcher
	root    *mkfs.Entry
	archive *os.File // the source, if it is one
	source  *fs.FS   // the image that is the source
	path    string   // ... and what of it
}

func (x *treeFlags) add(f *pflag.FlagSet) {
	f.StringVarP(&x.rootdir, "rootdir", "r", "", "fill it with what is in this directory")
	f.StringVar(&x.fromTar, "from-tar", "", "fill it with what is in this tar archive; - is standard input, kept in a file of TMPDIR meanwhile")
	f.StringVar(&x.fromCpio, "from-cpio", "", "fill it with what is in this cpio archive (newc, crc, odc), in the same way")
	f.StringVar(&x.from, "from", "", "fill it with what is in this image, or IMAGE:/path with a directory of it")
	f.BoolVar(&x.snapshots, "snapshots", false, "with --from: snapshots as well, each a subvolume that shares nothing")
	f.StringVar(&x.plan, "plan", "", "fill it, or change what is in rootdir or the archive, as this mtree(5) file says; - is standard input")
	f.StringVar(&x.table, "device-table", "", "fill it, or add to what is in the source and change that, as this table of genext2fs -D says; - is standard input")
	f.StringVar(&x.compress, "compress", "", "compress with zlib[:1-9], lzo or zstd[:1-15]; the default level is 3")
	f.StringArrayVar(&x.exclude, "exclude", nil, excludeHelp)
	f.StringArrayVarP(&x.subvols, "subvol", "u", nil, "make this directory of the tree a subvolume; default:, ro: or default-ro: "+
		"before it make it the default one, or read-only; may be repeated")
	f.BoolVar(&x.shrink, "shrink", false, "make it no larger than the tree needs, and the file, too")
	f.StringVar(&x.owner, "owner", "", "give everything this owner, as UID:GID, whatever the source has")
	f.StringVar(&x.ownerFrom, "owner-from", "", "with --rootdir: "+ownerFromHelp)
	f.BoolVar(&x.rootOwner, "root-owner", false, "--owner 0:0")
	f.BoolVarP(&x.verbose, "verbose", "v", false, "print each name")
	x.keep.add(f)
}

const excludeHelp = "leave out what matches, with what is below: a name, or with a / a path below the source; * and ? match no /; may be repeated"

// check checks which flags go together.
func (x *treeFlags) check(cmd *cobra.Command) error {
	return app.Check(cmd,
		app.NotEmpty("rootdir from-tar from-cpio from plan owner-from device-table", "--%s is empty, want a name"),
		app.Excludes("rootdir", "from-tar", "--rootdir with --from-tar, want one of them"),
		app.Excludes("rootdir", "from", "--rootdir with --from, want one of them"),
		app.Excludes("from-tar", "from", "--from-tar with --from, want one of them"),
		app.Excludes("from-cpio", "rootdir from-tar from", "--from-cpio with another source, want one of them"),
		app.Needs("owner-from", "rootdir", "--%s without --rootdir"),
		app.Excludes("owner-from", "owner root-owner no-owner", "--%s with another word about owners, want one of them"),
		app.Needs("snapshots", "from", "--%s without --from"),
		app.Needs("exclude owner root-owner", "rootdir from-tar from-cpio from", "--%s without --rootdir, --from-tar, --from-cpio or --from"),
		app.Needs("compress subvol shrink", "rootdir from-tar from-cpio from plan device-table", "--%s without --rootdir, --from-tar, --from-cpio, --from, --plan or --device-table"))
}

// parse takes the values of the flags.
func (x *treeFlags) parse(cmd *cobra.Command, o *mkfs.Options) (err error) {
	if x.empty() {
		return nil
	}
	if x.rootOwner && x.owner == "" {
		x.owner = "0:0"
	}
	if x.own, err = parseOwner(x.owner); err != nil {
		return app.Usagef(cmd, "%v", err)
	}
	if x.compress != "" {
		if o.Compress, err = compress.Parse(x.compress); err != nil {
			return app.Usagef(cmd, "%v", err)
		}
	}
	if x.skip, err = transfer.ParseExclude(x.exclude); err != nil {
		return app.Usagef(cmd, "%v", err)
	}
	o.Shrink = x.shrink
	return nil
}

// empty says that nothing fills the file system.
func (x *treeFlags) empty() bool {
	return x.rootdir == "" && x.fromTar == "" && x.fromCpio == "" && x.from == "" && x.plan == "" && x.table == ""
}

// scan lists the source. date is that of a file system that is the same each time, or zero.
func (x *treeFlags) scan(a verbs, image string, date time.Time) (err error) {
	x.w = &watcher{verbs: a, verb: "mkfs", verbose: x.verbose, bar: a.NewBar("mkfs", !x.verbose)}
	if x.empty() {
		return nil
	}
	s := transfer.NewScan(x.w)
	s.Keep, s.Owner, s.Exclude, s.Date = x.keep.keep(transfer.All), x.own, x.skip, date
	if st, err := os.Stat(image); err == nil {
		s.Image = st
	}
	x.scanner = s
	if x.rootdir != "" {
		owners, err := a.ownersFrom(x.ownerFrom, x.own == nil && !x.keep.owner)
		if err != nil {
			return err
		}
		s.Fakeroot(owners)
		if x.root, err = s.Tree(x.rootdir); err != nil {
			return err
		}
		a.warnOwners(x.ownerFrom, owners)
	}
	if x.fromTar != "" {
		if x.root, err = x.archived(a, x.fromTar, s.Tar); err != nil {
			return app.Named(x.fromTar, err)
		}
	}
	if x.fromCpio != "" {
		if x.root, err = x.archived(a, x.fromCpio, s.Cpio); err != nil {
			return app.Named(x.fromCpio, err)
		}
	}
	if x.source != nil {
		s.Snapshots = x.snapshots
		if x.root, err = s.From(a.Task, x.source, x.path); err != nil {
			return app.InImage(x.from, "", err)
		}
	}
	if x.plan != "" {
		if x.root, err = x.planned(a, s); err != nil {
			return fmt.Errorf("%s: %w", x.plan, err)
		}
	}
	if x.table != "" {
		if x.root, err = x.tabled(a, s); err != nil {
			return fmt.Errorf("%s: %w", x.table, err)
		}
	}
	return x.markSubvols()
}

// archived is the tree of an archive, by its name, as read lists it; close closes it.
func (x *treeFlags) archived(a verbs, name string, read func(io.Reader) (*mkfs.Entry, error)) (*mkfs.Entry, error) {
	if name == "-" {
		return read(a.Stdin())
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	x.archive = f
	return read(f)
}

// close lets the source go, after build.
func (x *treeFlags) close() error {
	var errs []error
	if x.scanner != nil {
		errs = append(errs, x.scanner.Close())
	}
	if x.archive != nil {
		errs = append(errs, x.archive.Close())
	}
	return errors.Join(errs...)
}

// planned is the tree as the plan says it.
func (x *treeFlags) planned(a verbs, s *transfer.Scan) (*mkfs.Entry, error) {
	if x.plan == "-" {
		return s.Plan(a.Stdin(), ".", x.root)
	}
	f, err := os.Open(x.plan)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return s.Plan(f, filepath.Dir(x.plan), x.root)
}

// tabled is the tree as the device table says it.
func (x *treeFlags) tabled(a verbs, s *transfer.Scan) (*mkfs.Entry, error) {
	if x.table == "-" {
		return s.Table(a.Stdin(), time.Now(), x.root)
	}
	f, err := os.Open(x.table)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return s.Table(f, st.ModTime(), x.root)
}

// markSubvols makes directories of the tree subvolumes. The default one of the source gives way to
// one that is named.
func (x *treeFlags) markSubvols() error {
	named := ""
	for _, v := range x.subvols {
		e, isDefault, err := markSubvol(x.root, v)
		if err != nil {
			return err
		}
		if !isDefault {
			continue
		}
		if named != "" {
			return fmt.Errorf("--subvol %s: the default one is %s already", v, named)
		}
		named = v
		x.each(func(o *mkfs.Entry) { o.Default = o == e })
	}
	return nil
}

// markSubvol makes a directory of the tree a subvolume: [default:|ro:|rw:|default-ro:]PATH.
func markSubvol(root *mkfs.Entry, arg string) (e *mkfs.Entry, isDefault bool, err error) {
	kind, path, ok := strings.Cut(arg, ":")
	isDefault, readOnly := kind == "default" || kind == "default-ro", kind == "ro" || kind == "default-ro"
	if !ok || !isDefault && !readOnly && kind != "rw" {
		path, isDefault, readOnly = arg, false, false
	}
	if e = find(root, path); e == nil || e == root {
		return nil, false, fmt.Errorf("--subvol %s: no such directory in the tree", arg)
	}
	if !e.IsDir() {
		return nil, false, fmt.Errorf("--subvol %s: is no directory", arg)
	}
	e.Subvol, e.Default, e.ReadOnly = true, e.Default || isDefault, readOnly
	return e, isDefault, nil
}

// find is the entry of a path of the tree, or nil.
func find(e *mkfs.Entry, path string) *mkfs.Entry {
	for name := range strings.FieldsFuncSeq(gopath.Clean("/"+path), func(r rune) bool { return r == '/' }) {
		if e = e.Child(name); e == nil {
			return nil
		}
	}
	return e
}

// build makes the file system, and returns its size.
func (x *treeFlags) build(a verbs, dev blockdev.Device, o mkfs.Options) (int64, error) {
	defer x.w.bar.Done()
	if x.root == nil {
		return 0, mkfs.Make(a.Task, dev, o)
	}
	return x.scanner.Build(a.Task, dev, o, x.root)
}

// newest is the time of the file that was changed last, 1970 without any.
func (x *treeFlags) newest() time.Time {
	t := time.Unix(0, 0)
	x.each(func(e *mkfs.Entry) {
		if e.Mtime.After(t) {
			t = e.Mtime
		}
	})
	return t
}

// undated makes the tree the same whoever has read it.
func (x *treeFlags) undated() {
	x.each(func(e *mkfs.Entry) { e.Atime = e.Mtime })
}

// each calls f for each name of the tree.
func (x *treeFlags) each(f func(e *mkfs.Entry)) {
	if x.root != nil {
		eachBelow(x.root, f)
	}
}

// eachBelow calls f for e and for all that is below.
func eachBelow(e *mkfs.Entry, f func(e *mkfs.Entry)) {
	f(e)
	e.Each(func(c *mkfs.Entry) { eachBelow(c, f) })
}
