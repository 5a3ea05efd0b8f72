package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	raw "btrlab/internal/progs/image"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
	"btrlab/internal/script"
)

// DeviceFlags gives --device to the verbs that open an existing image, and --degraded.
func (a *Run) DeviceFlags(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.GroupID == "files" || c.GroupID == "image" && c.Name() != "mkfs" {
			c.PersistentFlags().StringArrayVar(&a.Devices, "device", nil, "another device of the image's file system; once for each")
			if c.Name() != "check" && c.Name() != "scrub" { // they judge a whole
				c.PersistentFlags().BoolVar(&a.Degraded, "degraded", false, "go on without the devices that are missing")
			}
		}
	}
}

// WithDevices opens the image's devices, runs f and closes them: image is the first, --device names
// the others.
func (a *Run) WithDevices(image string, flags blockdev.Flags, f func(devs []blockdev.Device) error) error {
	if o := a.open(image); o != nil {
		return o.onDevices(a.Task, f)
	}
	devs, err := a.devices(image, flags)
	if err != nil {
		return err
	}
	open := true
	defer func() {
		if open { // after a panic
			_ = closeAll(devs)
		}
	}()
	err = f(slices.Clone(devs))
	open = false
	if cerr := closeAll(devs); err == nil {
		err = cerr
	}
	if a.OfOther(err) {
		return err
	}
	return Named(image, err)
}

// devices opens the devices of an image that is not open: image is the first.
func (a *Run) devices(image string, flags blockdev.Flags) (devs []blockdev.Device, err error) {
	defer func() {
		if err != nil {
			_ = closeAll(devs)
		}
	}()
	for _, name := range append([]string{image}, a.Devices...) {
		dev, err := a.openDevice(name, flags)
		if err != nil {
			return devs, Named(name, err)
		}
		devs = append(devs, dev)
	}
	if flags&blockdev.ReadOnly != 0 && !a.NoReplay {
		a.warnLog(devs[0])
	}
	for i, dev := range devs {
		over, err := a.Over(dev)
		if err != nil {
			return devs, Named(dev.Name(), err)
		}
		devs[i] = over
	}
	return devs, nil
}

// closeAll closes the devices, and returns the first error.
func closeAll(devs []blockdev.Device) (err error) {
	for _, dev := range devs {
		if cerr := dev.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// openDevice opens a device of the image, or the partition of it with the btrfs.
func (a *Run) openDevice(name string, flags blockdev.Flags) (blockdev.Device, error) {
	if a.Session != nil {
		return a.Session.open(name, flags, func(dev blockdev.Device) (blockdev.Device, error) { return a.onDisk(dev, flags) })
	}
	dev, err := blockdev.Open(name, flags)
	if err != nil {
		return nil, Whole(name, err)
	}
	return a.onDisk(dev, flags)
}

// OfOther reports whether an error is about a device that --device names.
func (a *Run) OfOther(err error) bool {
	return err != nil && anyError(err, func(err error) bool { return slices.Contains(a.Devices, object(err)) })
}

// warnLog warns of a log tree, which only an open for writing replays: what the reader sees is
// older than the last fsyncs. It leaves all errors to the verb.
func (a *Run) warnLog(dev blockdev.Device) {
	if s := raw.ReadSuper(a.Task, dev, 0); s.Err == nil && s.Super.LogRoot != 0 {
		fmt.Fprintf(a.Err, "btrlab: warning: %s has a log tree: shown is the state before the last fsyncs,\nwhich any verb that writes replays, as a mount in Linux does\n", dev.Name())
	}
}

// badCopiesMax is how many bad copies of an image are named.
const badCopiesMax = 10

// WarnCopies makes the function that warns of copies that are bad where another one is good: of the
// first few.
func (a *Run) WarnCopies(image string) func(err error) {
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
			fmt.Fprintf(a.Err, "btrlab: warning: %s: a bad copy, another one was read: %s\n", image, Shown(a.Err, text))
		}
	}
}

// warnLost makes the function that warns of a spare superblock that could not be written: what was
// done is on the device, and nothing but the spare is older.
func (a *Run) warnLost(image string) func(err error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			fmt.Fprintf(a.Err, "btrlab: warning: %s: a spare superblock is not as it should be, rescue fix-super writes it: %s\n", image, Shown(a.Err, err.Error()))
		})
	}
}

// hintLog says what to do about a log that cannot be replayed.
func (a *Run) hintLog(err error, image string) {
	if errors.Is(err, fs.ErrLog) {
		fmt.Fprintf(a.Err, "btrlab: the log is left as it is: --no-log-replay shows the last commit, and\n'btrlab rescue zero-log %s' drops the log with the last fsyncs\n", image)
	}
}

// SubvolFlag is --subvol: a path from the top level, or the number of a tree.
type SubvolFlag struct {
	ID   uint64
	Path string
}

func (s *SubvolFlag) String() string { return s.Path }

func (s *SubvolFlag) Type() string { return "path|id" }

func (s *SubvolFlag) Set(v string) error {
	if id, err := strconv.ParseUint(v, 10, 64); err == nil {
		*s = SubvolFlag{ID: id}
		if id == 0 {
			s.ID = format.FS_TREE_OBJECTID // as for mount -o subvolid=0
		}
		return nil
	}
	if v == "" {
		return errors.New("want a path or a number")
	}
	*s = SubvolFlag{Path: v}
	return nil
}

// OpenFlags gives --no-log-replay and --subvol to the verbs that open the file system of an image.
func (a *Run) OpenFlags(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.GroupID == "files" || c.Name() == "quota" {
			c.PersistentFlags().Var(&a.Subvol, "subvol", "the subvolume in which paths begin, by path or id; 5 is the top level (default: the image's default one)")
			c.PersistentFlags().BoolVar(&a.NoReplay, "no-log-replay", false, "open the image read-only and leave its log as it is: shown is the last commit")
		}
	}
}

// ReadFS runs f on the image opened for reading.
func (a *Run) ReadFS(image string, f func(x *fs.FS) error) error {
	return a.WithFS(image, blockdev.ReadOnly, fs.Options{ReadOnly: true}, f)
}

// ReadSource is ReadFS of an image that another one is made of: of one device, from its top level,
// and without the flags that are about the other one, which hold again in f.
func (a *Run) ReadSource(image string, f func(x *fs.FS) error) error {
	made := a.Opening
	a.Opening = Opening{Cache: made.Cache, Subvol: SubvolFlag{ID: format.FS_TREE_OBJECTID}}
	defer func() { a.Opening = made }()
	return a.ReadFS(image, func(x *fs.FS) error {
		a.Opening = made
		return f(x)
	})
}

// WriteFS runs f on the image opened for writing, and commits even if f fails: the operations that
// f finished are kept. It returns the first error.
func (a *Run) WriteFS(image string, f func(x *fs.FS) error) error {
	return a.WithFS(image, 0, fs.Options{}, f)
}

// WithFS runs f on the image opened with flags and o, or on the open one, and commits.
func (a *Run) WithFS(image string, flags blockdev.Flags, o fs.Options, f func(x *fs.FS) error) error {
	if open := a.open(image); open != nil {
		return f(open.FS)
	}
	o.Memory = a.CacheSize()
	if err := a.fsOptions(image, &flags, &o); err != nil {
		return err
	}
	defer a.LimitHeap()()
	if o.Now != nil && !o.ReadOnly {
		o.Memory = ReproducibleMemory
		return a.InOrder(func() error { return a.OpenFS(image, flags, o, f) })
	}
	return a.OpenFS(image, flags, o, f)
}

// fsOptions sets what the flags of the verb and the environment say of an open of the image.
func (a *Run) fsOptions(image string, flags *blockdev.Flags, o *fs.Options) (err error) {
	if o.Now, err = SourceDate(); err != nil {
		return err
	}
	o.Subvol, o.SubvolPath = a.Subvol.ID, a.Subvol.Path
	o.BadCopy = a.WarnCopies(image)
	if a.NoReplay {
		*flags, o.ReadOnly = *flags|blockdev.ReadOnly, true
	}
	return nil
}

// OpenFS is WithFS with its options.
func (a *Run) OpenFS(image string, flags blockdev.Flags, o fs.Options, f func(x *fs.FS) error) error {
	o.Degraded = a.Degraded
	o.LostCopy = a.warnLost(image)
	return a.WithDevices(image, flags, func(devs []blockdev.Device) error {
		x, err := fs.Open(a.Task, devs, o)
		if err != nil {
			a.hintLog(err, image)
			return err
		}
		err = f(x)
		return WithCommit(err, x.Close(a.Task))
	})
}

// SourceDate is a clock that stands at SOURCE_DATE_EPOCH, seconds since 1970, so that an image can
// be made again with the same bytes; nil when the environment has none.
func SourceDate() (func() time.Time, error) {
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

// ReproducibleMemory is the memory of the caches, in bytes, when an image is to be the same each
// time: what they hold decides what is written when.
const ReproducibleMemory = 256 << 20

// InOrder runs f in virtual time, on one processor whose work takes no time: all its tasks run in
// the same order each time, on any machine.
func (a *Run) InOrder(f func() error) (err error) {
	real := a.Task
	defer func() { a.Task = real }()
	_, verr := vtime.Run(vtime.Machine{CPUs: 1, Costs: &cost.Table{}}, func(t *sched.Task) {
		a.Task = t
		err = f()
	})
	if err == nil {
		err = verr
	}
	return err
}

// OnFile runs f on an existing file opened for writing, with more flags if there are any.
func (a *Run) OnFile(image, path string, more fs.OpenFlags, f func(x *fs.FS, file *fs.File) error) error {
	return a.WriteFS(image, func(x *fs.FS) error {
		return InImage(image, path, script.OnFile(a.Task, x, path, fs.O_RDWR|more, func(_ *sched.Task, file *fs.File) error { return f(x, file) }))
	})
}

// EachImage calls f for each IMAGE:/path of args, and opens an image once for a run of arguments
// that name it. It goes on after an error.
func (a *Run) EachImage(cmd *cobra.Command, args []string, f func(x *fs.FS, path string) error) error {
	type target struct{ image, path string }
	targets := make([]target, len(args))
	for i, arg := range args {
		image, path, err := a.FileSpec(cmd, arg)
		if err != nil {
			return err
		}
		targets[i] = target{image, path}
	}
	var failed Several
	for len(targets) > 0 {
		image, n := targets[0].image, 1
		for n < len(targets) && targets[n].image == image {
			n++
		}
		err := a.WriteFS(image, func(x *fs.FS) error {
			var failed Several
			for _, g := range targets[:n] {
				if !failed.Add(a.Interrupted()) {
					break
				}
				Each(f(x, g.path), func(err error) { failed.Add(InImage(image, g.path, err)) })
			}
			return failed.Err()
		})
		if !failed.Add(err) {
			break
		}
		targets = targets[n:]
	}
	return failed.Err()
}

// Over puts the layers on a device that --fault and --device-model ask for.
func (a *Run) Over(dev blockdev.Device) (blockdev.Device, error) {
	if a.Live {
		f := dm.NewFlakey(dev, a.Faults...)
		a.Flakeys = append(a.Flakeys, f)
		dev = f
	} else {
		dev = a.Faults.On(dev)
	}
	if a.Model == "" || a.Model == "none" {
		return dev, nil
	}
	p, err := dm.Parse(a.Model)
	if err != nil {
		return nil, err
	}
	return dm.New(a.Task, dev, p), nil
}
