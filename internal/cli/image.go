package cli

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	gopath "path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	raw "btrlab/internal/progs/image"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// splitSpec takes IMAGE:/path apart. The image is the longest prefix before a ":/" that names a
// file, so that both names may hold colons.
func splitSpec(spec string) (image, path string, ok bool) {
	first := -1
	for i := 0; i+1 < len(spec); i++ {
		if spec[i] != ':' || spec[i+1] != '/' || i == 0 {
			continue
		}
		if first < 0 {
			first = i
		}
		if st, err := os.Stat(spec[:i]); err == nil && !st.IsDir() {
			return spec[:i], gopath.Clean(spec[i+1:]), true
		}
	}
	if first < 0 {
		return spec, "/", false
	}
	return spec[:first], gopath.Clean(spec[first+1:]), true
}

// splitSpec is splitSpec of a verb's argument; in a shell that is a path of the open image.
func (a *app) splitSpec(spec string) (image, path string, ok bool) {
	if a.open != nil && gopath.IsAbs(spec) {
		return a.open.name, gopath.Clean(spec), true
	}
	if a.open != nil {
		return a.open.name, "/", false
	}
	return splitSpec(spec)
}

// fileSpec is splitSpec for verbs that need a path in the image.
func (a *app) fileSpec(cmd *cobra.Command, spec string) (image, path string, err error) {
	image, path, ok := a.splitSpec(spec)
	if !ok && a.open != nil {
		return "", "", usagef(cmd, "%q is no path in the image, want /path", spec)
	}
	if !ok {
		return "", "", usagef(cmd, "%q names no file in an image, want IMAGE:/path", spec)
	}
	return image, path, nil
}

// named puts the name of the image before an error that does not have it yet.
func named(image string, err error) error {
	if err == nil || anyError(err, func(err error) bool {
		of := object(err)
		return of == image || strings.HasPrefix(of, image+":/")
	}) {
		return err
	}
	return &blockdev.NameError{Name: image, Err: err}
}

// object is the file, device or image that one error of a chain is about; "" if it names none.
func object(err error) string {
	switch e := err.(type) {
	case *errno.OpError:
		return e.Path
	case *iofs.PathError:
		return e.Path
	case *blockdev.NameError:
		return e.Name
	case *mkfs.ExistsError:
		return e.Device
	case *notEmptyError:
		return e.path
	}
	return ""
}

// anyError reports whether f holds for err or for one that it wraps.
func anyError(err error, f func(error) bool) bool {
	for err != nil {
		if f(err) {
			return true
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return anyError(err, f) })
		default:
			return false
		}
	}
	return false
}

// deviceFlags gives --device to the verbs that open an existing image, and --degraded.
func (a *app) deviceFlags(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.GroupID == "files" || c.GroupID == "image" && c.Name() != "mkfs" {
			c.PersistentFlags().StringArrayVar(&a.devices, "device", nil, "another device of the image's file system; once for each")
			c.PersistentFlags().BoolVar(&a.degraded, "degraded", false, "read an image of which devices are missing")
		}
	}
}

// withDevices opens the image's devices, runs f and closes them: image is the first, --device names
// the others.
func (a *app) withDevices(image string, flags blockdev.Flags, f func(devs []blockdev.Device) error) error {
	if a.open != nil {
		return a.open.onDevices(a.t, f)
	}
	var devs []blockdev.Device
	defer func() {
		for _, dev := range devs {
			dev.Close()
		}
	}()
	for _, name := range append([]string{image}, a.devices...) {
		dev, err := a.openDevice(name, flags)
		if err != nil {
			return named(name, err)
		}
		devs = append(devs, dev)
	}
	if flags&blockdev.ReadOnly != 0 && !a.noReplay {
		a.warnLog(devs[0])
	}
	for i, dev := range devs {
		over, err := a.over(dev)
		if err != nil {
			return named(dev.Name(), err)
		}
		devs[i] = over
	}
	err := f(slices.Clone(devs))
	for _, dev := range devs {
		if cerr := dev.Close(); err == nil {
			err = cerr
		}
	}
	devs = nil
	if a.ofOther(err) {
		return err
	}
	return named(image, err)
}

// openDevice opens a device of the image, or the partition of it with the btrfs.
func (a *app) openDevice(name string, flags blockdev.Flags) (blockdev.Device, error) {
	dev, err := blockdev.Open(name, flags)
	if err != nil {
		return nil, whole(name, err)
	}
	return a.onDisk(dev, flags)
}

// ofOther reports whether an error is about a device that --device names.
func (a *app) ofOther(err error) bool {
	return err != nil && anyError(err, func(err error) bool { return slices.Contains(a.devices, object(err)) })
}

// whole is err, which opening image came to, or says that the image is wanted where a file in it
// was named.
func whole(image string, err error) error {
	spec := image
	if strings.HasSuffix(spec, ":") {
		spec += "/"
	}
	if name, _, ok := splitSpec(spec); ok && errors.Is(err, iofs.ErrNotExist) {
		if _, serr := os.Stat(name); serr == nil {
			return fmt.Errorf("names a file in an image, want the image: %s", name)
		}
	}
	return err
}

// warnLog warns of a log tree, which only an open for writing replays: what the reader sees is
// older than the last fsyncs. It leaves all errors to the verb.
func (a *app) warnLog(dev blockdev.Device) {
	if s := raw.ReadSuper(a.t, dev, 0); s.Err == nil && s.Super.LogRoot != 0 {
		fmt.Fprintf(a.err, "btrlab: warning: %s has a log tree: shown is the state before the last fsyncs,\nwhich any verb that writes replays, as a mount in Linux does\n", dev.Name())
	}
}

// badCopiesMax is how many bad copies of an image are named.
const badCopiesMax = 10

// warnCopies makes the function that warns of copies that are bad where another one is good: of the
// first few.
func (a *app) warnCopies(image string) func(err error) {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if text := err.Error(); !seen[text] && len(seen) <= badCopiesMax {
			seen[text] = true
			if len(seen) > badCopiesMax {
				text = "there are more"
			}
			fmt.Fprintf(a.err, "btrlab: warning: %s: a bad copy, another one was read: %s\n", image, shown(a.err, text))
		}
	}
}

// warnLost makes the function that warns of a spare superblock that could not be written: what was
// done is on the device, and nothing but the spare is older.
func (a *app) warnLost(image string) func(err error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			fmt.Fprintf(a.err, "btrlab: warning: %s: a spare superblock is not as it should be, rescue fix-super writes it: %s\n", image, shown(a.err, err.Error()))
		})
	}
}

// hintLog says what to do about a log that cannot be replayed.
func (a *app) hintLog(err error, image string) {
	if errors.Is(err, fs.ErrLog) {
		fmt.Fprintf(a.err, "btrlab: the log is left as it is: --no-log-replay shows the last commit, and\n'btrlab rescue zero-log %s' drops the log with the last fsyncs\n", image)
	}
}

// subvolFlag is --subvol: a path from the top level, or the number of a tree.
type subvolFlag struct {
	id   uint64
	path string
}

func (s *subvolFlag) String() string { return s.path }
func (s *subvolFlag) Type() string   { return "path|id" }

func (s *subvolFlag) Set(v string) error {
	if id, err := strconv.ParseUint(v, 10, 64); err == nil {
		*s = subvolFlag{id: id}
		if id == 0 {
			s.id = format.FS_TREE_OBJECTID // as for mount -o subvolid=0
		}
		return nil
	}
	if v == "" {
		return errors.New("want a path or a number")
	}
	*s = subvolFlag{path: v}
	return nil
}

// openFlags gives --no-log-replay and --subvol to the verbs that open the file system of an image.
func (a *app) openFlags(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.GroupID == "files" || c.Name() == "quota" {
			c.PersistentFlags().Var(&a.subvol, "subvol", "the subvolume in which paths begin, by path or id; 5 is the top level (default: the image's default one)")
			c.PersistentFlags().BoolVar(&a.noReplay, "no-log-replay", false, "open the image read-only and leave its log as it is: shown is the last commit")
		}
	}
}

// readFS runs f on the image opened for reading.
func (a *app) readFS(image string, f func(x *fs.FS) error) error {
	return a.withFS(image, blockdev.ReadOnly, fs.Options{ReadOnly: true}, f)
}

// writeFS runs f on the image opened for writing, and commits even if f fails: the operations that
// f finished are kept. It returns the first error.
func (a *app) writeFS(image string, f func(x *fs.FS) error) error {
	return a.withFS(image, 0, fs.Options{}, f)
}

func (a *app) withFS(image string, flags blockdev.Flags, o fs.Options, f func(x *fs.FS) error) error {
	if a.open != nil {
		return f(a.open.fs)
	}
	o.Memory = a.cacheSize()
	var err error
	if o.Now, err = sourceDate(); err != nil {
		return err
	}
	o.Subvol, o.SubvolPath = a.subvol.id, a.subvol.path
	o.BadCopy = a.warnCopies(image)
	if a.noReplay {
		flags, o.ReadOnly = flags|blockdev.ReadOnly, true
	}
	defer a.limitHeap()()
	if o.Now != nil && !o.ReadOnly {
		o.Memory = reproducibleMemory
		return a.inOrder(func() error { return a.openFS(image, flags, o, f) })
	}
	return a.openFS(image, flags, o, f)
}

// openFS is withFS with its options.
func (a *app) openFS(image string, flags blockdev.Flags, o fs.Options, f func(x *fs.FS) error) error {
	o.Degraded = a.degraded
	o.LostCopy = a.warnLost(image)
	return a.withDevices(image, flags, func(devs []blockdev.Device) error {
		x, err := fs.Open(a.t, devs, o)
		if err != nil {
			a.hintLog(err, image)
			return err
		}
		err = f(x)
		return withCommit(err, x.Close(a.t))
	})
}

// sourceDate is a clock that stands at SOURCE_DATE_EPOCH, seconds since 1970, so that an image can
// be made again with the same bytes; nil when the environment has none.
func sourceDate() (func() time.Time, error) {
	s, ok := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !ok || s == "" {
		return nil, nil
	}
	sec, err := strconv.ParseInt(s, 10, 64)
	if err != nil || sec < 0 {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH %q, want seconds since 1970", s)
	}
	return func() time.Time { return time.Unix(sec, 0) }, nil
}

// reproducibleMemory is the memory of the caches, in bytes, when an image is to be the same each
// time: what they hold decides what is written when.
const reproducibleMemory = 256 << 20

// inOrder runs f in virtual time, on one processor whose work takes no time: all its tasks run in
// the same order each time, on any machine.
func (a *app) inOrder(f func() error) (err error) {
	real := a.t
	defer func() { a.t = real }()
	_, verr := vtime.Run(vtime.Machine{CPUs: 1, Costs: &cost.Table{}}, func(t *sched.Task) {
		a.t = t
		err = f()
	})
	if err == nil {
		err = verr
	}
	return err
}

// heapSlack is the memory of the program without its caches, in bytes.
const heapSlack = 32 << 20

// cacheSize is --cache or its default, in bytes.
func (a *app) cacheSize() int64 {
	if a.cache.n > 0 {
		return a.cache.n
	}
	return fs.DefaultMemory()
}

// limitHeap makes the garbage collector keep the heap within the caches and a little more. Without
// a limit the heap may grow to twice the size of the caches. A lower limit that the user has set
// (GOMEMLIMIT) stays.
func (a *app) limitHeap() (undo func()) {
	old := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(old, a.cacheSize()+heapSlack))
	return func() { debug.SetMemoryLimit(old) }
}

// minCache is the least that --cache takes, in bytes.
const minCache = 4 << 20

// cacheFlag is --cache, for the verbs that read or change much.
func (a *app) cacheFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&a.cache, "cache", "memory for file contents and metadata (default a quarter of RAM, at most 1G)")
	a.cacheBound(cmd)
}

// smallCacheFlag is --cache for the verbs that read or write everything once: a larger cache than n
// bytes costs more than it saves, because its memory is new.
func (a *app) smallCacheFlag(cmd *cobra.Command, n int64) {
	cmd.Flags().Var(&a.cache, "cache", "memory for file contents and metadata (default "+formatSize(n)+")")
	a.cacheBound(cmd)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !a.cache.set {
			a.cache.n = n
		}
		return run(cmd, args)
	}
}

func (a *app) cacheBound(cmd *cobra.Command) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.cache.set && a.cache.n < minCache {
			return usagef(cmd, "bad --cache, have %d want at least %d", a.cache.n, minCache)
		}
		return run(cmd, args)
	}
}

// inImage names the image and, in an error that names neither path nor a file below, path.
func inImage(image, path string, err error) error {
	if err == nil || errors.Is(err, errInterrupted) {
		return err
	}
	if path != "/" && anyError(err, func(err error) bool {
		_, host := err.(*iofs.PathError)
		of := object(err)
		return !host && (of == path || strings.HasPrefix(of, path+"/"))
	}) {
		return &blockdev.NameError{Name: image, Err: err}
	}
	return &blockdev.NameError{Name: image + ":" + path, Err: err}
}

// completeSpec completes IMAGE, then :/path inside it.
func (a *app) completeSpec(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	image, _, ok := a.splitSpec(word)
	if !ok {
		return nil, cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveNoSpace
	}
	typed := word[len(image)+1:]
	dir, base := gopath.Split(typed)
	var names []string
	err := a.readFS(image, func(x *fs.FS) error {
		list, err := x.ReadDir(a.t, dir)
		for _, e := range list {
			if !strings.HasPrefix(e.Name, base) {
				continue
			}
			name := image + ":" + dir + e.Name
			if e.Type == format.FtDir {
				name += "/"
			}
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// twoPaths reads IMAGE:/a and /b or IMAGE:/b.
func (a *app) twoPaths(cmd *cobra.Command, args []string) (image, from, to string, err error) {
	image, from, err = a.fileSpec(cmd, args[0])
	if err != nil {
		return "", "", "", err
	}
	to = args[1]
	if other, path, ok := a.splitSpec(to); ok {
		if other != image {
			return "", "", "", usagef(cmd, "%s and %s are two images, want one", image, other)
		}
		to = path
	}
	if !gopath.IsAbs(to) {
		return "", "", "", usagef(cmd, "%q is no path in the image, want /path", args[1])
	}
	return image, from, gopath.Clean(to), nil
}

// intoDir is to, or the name of from in it when to is a directory.
func (a *app) intoDir(x *fs.FS, from, to string) string {
	if at, err := x.Stat(a.t, to); err == nil && at.IsDir() {
		return gopath.Join(to, gopath.Base(from))
	}
	return to
}

// onFile runs f on an existing file opened for writing, with more flags if there are any.
func (a *app) onFile(image, path string, more fs.OpenFlags, f func(x *fs.FS, file *fs.File) error) error {
	return a.writeFS(image, func(x *fs.FS) error {
		file, err := x.OpenFile(a.t, path, fs.O_RDWR|more, 0)
		if err != nil {
			return inImage(image, path, err)
		}
		err = f(x, file)
		if cerr := file.Close(a.t); err == nil {
			err = cerr
		}
		return inImage(image, path, err)
	})
}
