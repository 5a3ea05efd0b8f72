package app

import (
	"errors"
	"fmt"
	"maps"
	gopath "path"
	"slices"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// OpenImage is an image that stays open while sh runs verbs on it, line by line. Every verb opens
// its image through WithFS or WithDevices, which give it this one, or the one that Mount has put at
// a path.
type OpenImage struct {
	Name  string
	Devs  []blockdev.Device
	FS    *fs.FS
	Stdin bool // standard input has the lines
	JSON  bool

	Snapshots Snapshots // nil: each is made at once

	// Of the verb at hand, for --json.
	Result any
	Bytes  *int

	mounts map[string]*OpenImage // other images, by the path at which theirs begin
}

// Snapshots makes snapshots of several lines together.
type Snapshots interface {
	// Add makes path `to` a snapshot of the subvolume at from, now or with those of the next lines:
	// the error that it returns says so to who runs the line.
	Add(x *fs.FS, image, from, to string, readOnly bool) error
}

// onDevices runs f on the image as it is on its devices, after a commit.
func (o *OpenImage) onDevices(t *sched.Task, f func(devs []blockdev.Device) error) error {
	if err := o.FS.Sync(t); err != nil {
		return err
	}
	return f(o.Devs)
}

// at is the image at a clean path, and the path in it.
func (o *OpenImage) at(path string) (*OpenImage, string) {
	for dir := path; dir != "/"; dir = gopath.Dir(dir) {
		if m := o.mounts[dir]; m != nil {
			return m, gopath.Join("/", strings.TrimPrefix(path, dir))
		}
	}
	return o, path
}

// open is the open image of the name; the first one, if none has that name; nil outside of sh.
func (a *Run) open(name string) *OpenImage {
	if a.Open == nil {
		return nil
	}
	for _, m := range a.Open.mounts {
		if m.Name == name {
			return m
		}
	}
	return a.Open
}

// Mounted is the name of the image that Mount has put at dir.
func (o *OpenImage) Mounted(dir string) (name string, ok bool) {
	m := o.mounts[gopath.Clean(dir)]
	if m == nil {
		return "", false
	}
	return m.Name, true
}

// Mounts are the paths at which other images are, in order.
func (o *OpenImage) Mounts() []string { return slices.Sorted(maps.Keys(o.mounts)) }

// EachFS calls f for the file systems that are open, and returns the first error.
func (o *OpenImage) EachFS(f func(x *fs.FS) error) error {
	err := f(o.FS)
	for _, dir := range o.Mounts() {
		if merr := f(o.mounts[dir].FS); err == nil {
			err = merr
		}
	}
	return err
}

// Mount opens an image as how says and puts it at dir, an absolute path: from there on paths lead
// into it. Nothing has to be there, and what is there is hidden.
func (a *Run) Mount(image, dir string, how Opening) error {
	dir = gopath.Clean(dir)
	if name, ok := a.Open.Mounted(dir); ok || dir == "/" {
		if dir == "/" {
			name = a.Open.Name
		}
		return fmt.Errorf("%s has %s already", dir, name)
	}
	first := a.Opening
	a.Opening = how
	defer func() { a.Opening = first }()
	var flags blockdev.Flags
	// The first one has the cache of the flags; a quarter of it is for each other one.
	o := fs.Options{Memory: max(a.CacheSize()/4, MinCache), Degraded: a.Degraded, LostCopy: a.warnLost(image)}
	if err := a.fsOptions(image, &flags, &o); err != nil {
		return err
	}
	if o.Now != nil {
		o.Memory = ReproducibleMemory
	}
	devs, err := a.devices(image, flags)
	if err != nil {
		return err
	}
	x, err := fs.Open(a.Task, devs, o)
	if err != nil {
		a.hintLog(err, image)
		return Named(image, errors.Join(err, closeAll(devs)))
	}
	if a.Open.mounts == nil {
		a.Open.mounts = map[string]*OpenImage{}
	}
	a.Open.mounts[dir] = &OpenImage{Name: devs[0].Name(), Devs: devs, FS: x}
	return nil
}

// Umount commits and closes the image at dir.
func (a *Run) Umount(dir string) error {
	dir = gopath.Clean(dir)
	m := a.Open.mounts[dir]
	if m == nil {
		return fmt.Errorf("nothing is mounted at %s", dir)
	}
	delete(a.Open.mounts, dir)
	err := m.FS.Close(a.Task)
	if cerr := closeAll(m.Devs); err == nil {
		err = cerr
	}
	return Named(m.Name, err)
}

// UmountAll is Umount of all; it returns the first error.
func (a *Run) UmountAll() (err error) {
	for _, dir := range a.Open.Mounts() {
		if uerr := a.Umount(dir); err == nil {
			err = uerr
		}
	}
	return err
}

// Session are the disks that a run has open, each once, so that two partitions of one can be used
// together. It is of one task.
type Session struct{ disks []*disk }

// disk is an open image file or block device, and who uses it.
type disk struct {
	blockdev.Device
	readOnly bool
	leases   []*lease
}

// lease is a user of a disk; the disk is closed with the last one.
type lease struct {
	blockdev.Device
	of        *Session
	disk      *disk
	off, size int64 // its range, in bytes; none before it is known
}

func (l *lease) Under() blockdev.Device { return l.Device }
func (l *lease) Offset() int64          { return 0 }

func (l *lease) Close() error {
	d := l.disk
	d.leases = slices.DeleteFunc(d.leases, func(o *lease) bool { return o == l })
	if len(d.leases) > 0 {
		return nil
	}
	l.of.disks = slices.DeleteFunc(l.of.disks, func(o *disk) bool { return o == d })
	return d.Device.Close()
}

// open opens a device that may be open already, and finds the file system in it by find, which
// closes what it gets with an error. One range of a disk is open once.
func (s *Session) open(name string, flags blockdev.Flags, find func(dev blockdev.Device) (blockdev.Device, error)) (blockdev.Device, error) {
	i := slices.IndexFunc(s.disks, func(d *disk) bool { return blockdev.Same(d.Name(), name) })
	if i < 0 {
		dev, err := blockdev.Open(name, flags)
		if err != nil {
			return nil, Whole(name, err)
		}
		i = len(s.disks)
		s.disks = append(s.disks, &disk{Device: dev, readOnly: flags&blockdev.ReadOnly != 0})
	}
	d := s.disks[i]
	if d.readOnly && flags&blockdev.ReadOnly == 0 {
		return nil, fmt.Errorf("%w: it is open read-only here", blockdev.ErrInUse)
	}
	l := &lease{Device: d.Device, of: s, disk: d}
	d.leases = append(d.leases, l)
	dev, err := find(l)
	if err != nil {
		return nil, err
	}
	_, off := blockdev.Base(dev)
	for _, o := range d.leases {
		if off < o.off+o.size && o.off < off+dev.Size() {
			return nil, errors.Join(fmt.Errorf("%w: it is open here already", blockdev.ErrInUse), dev.Close())
		}
	}
	l.off, l.size = off, dev.Size()
	return dev, nil
}
