// Package rig is the test bench that experiments run on: a real btrfs image, in memory, in a file
// or on a block device, with a latency model over it if one is wanted, and files in it to work on.
package rig

import (
	"errors"
	"fmt"
	gopath "path"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/policy"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// Models are the names that Config.Model takes; "none" is the device as it is.
func Models() []string { return append([]string{"none"}, dm.Names()...) }

// CheckModel says whether Config.Model takes spec.
func CheckModel(spec string) error {
	if spec == "none" {
		return nil
	}
	_, err := dm.Parse(spec)
	return err
}

// Config says where the image is.
type Config struct {
	// Device is an image or block device that holds a btrfs; empty is a fresh image in memory.
	Device string
	// DeviceFlags say how Device is opened: past the page cache, through a ring.
	DeviceFlags blockdev.Flags
	// Size is the bytes of an image in memory; 0 is DefaultSize.
	Size int64
	// Model is the latency model over the device: one of Models, with parameters as dm.Parse reads
	// them, or empty for none.
	Model string
	// DirtyBackground and DirtyLimit are fs.Options; 0 is a sixteenth and an eighth of the test
	// file, about what a machine with as much memory as seed 002's gives a file of 16 GiB.
	DirtyBackground, DirtyLimit int64
	// Memory, CacheLimit, NoPayload and EndioNewest are fs.Options. EndioWorkers too; 0 is its
	// default.
	Memory       int64
	CacheLimit   int64
	NoPayload    bool
	EndioNewest  bool
	EndioWorkers int
	// CommitInterval is fs.Options; 0 is never.
	CommitInterval time.Duration
	// Seed of the model; 0 leaves what Model says.
	Seed uint64
	// Faults are what the device below the model fails.
	Faults []dm.Fault
	// Files, if it is not 0, is how many COW files there are instead of one NOCOW file that is
	// preallocated: the session's file is one after the other.
	Files int
	// Kind is that of the test files.
	Kind Kind
	// SmallLeaf is iopath.Lab.SmallLeaf.
	SmallLeaf int
	// Params, if set, is the model instead of Model, which then only names it.
	Params *dm.Params
}

// Kind says whether test files are copied on write.
type Kind uint8

// The kinds. Usual is NOCOW for one file, and COW for several.
const (
	Usual Kind = iota
	Cow
	Nocow
)

// DefaultSize is the size of an image in memory, in bytes. Most of it is free: what dirty data may
// need of metadata is promised from space that is in no block group yet, as on a disk.
const DefaultSize = 1 << 36

// TestFile is the file that experiments write.
const TestFile = "/btrlab-test"

// Rig is an experiment.Rig and an experiment.RawOpener. It is for one task.
type Rig struct {
	cfg  Config
	raw  blockdev.Device
	dev  blockdev.Device // raw, or a model over it
	size int64           // of the test file
}

// Open opens the device; an image in memory is formatted.
func Open(t *sched.Task, cfg Config) (*Rig, error) {
	r := &Rig{cfg: cfg}
	var err error
	if cfg.Device != "" {
		r.raw, err = blockdev.Open(cfg.Device, cfg.DeviceFlags)
	} else {
		if cfg.Size == 0 {
			cfg.Size = DefaultSize
		}
		r.raw = blockdev.NewMemory(cfg.Size)
		o := mkfs.Options{Label: "btrlab"}
		if t.Runtime() != nil {
			o.Now = time.Unix(0, t.Now())
		}
		err = mkfs.Make(t, r.raw, o)
	}
	if err != nil {
		return nil, err
	}
	r.dev = r.raw
	if len(cfg.Faults) > 0 {
		r.dev = dm.NewFlakey(r.raw, cfg.Faults...)
	}
	if cfg.Model != "" && cfg.Model != "none" {
		p, err := dm.Parse(cfg.Model)
		if err != nil {
			r.raw.Close()
			return nil, err
		}
		if cfg.Params != nil {
			p = *cfg.Params
		}
		if cfg.Seed != 0 {
			p.Seed = cfg.Seed
		}
		r.dev = dm.New(t, r.dev, p)
	}
	return r, nil
}

// On is a rig on devices that are there already: raw holds a formatted image, dev is raw or
// something over it.
func On(raw, dev blockdev.Device, cfg Config) *Rig { return &Rig{cfg: cfg, raw: raw, dev: dev} }

// Device is what the file system is opened on.
func (r *Rig) Device() blockdev.Device { return r.dev }

// DeviceName is the path, or "memory".
func (r *Rig) DeviceName() string { return r.raw.Name() }

// ModelName is the model, or "none".
func (r *Rig) ModelName() string {
	if r.cfg.Model == "" {
		return "none"
	}
	return r.cfg.Model
}

// Close closes the device.
func (r *Rig) Close() error { return r.dev.Close() }

// Prepare makes the test file anew, NOCOW and preallocated.
func (r *Rig) Prepare(t *sched.Task, size int64) error {
	r.size = size
	o, err := r.options(t, "locked")
	if err != nil {
		return err
	}
	x, err := fs.Open(t, []blockdev.Device{r.raw}, o)
	if err != nil {
		return err
	}
	err = prepare(t, x, size, r.cfg.Files, r.cfg.Kind)
	if cerr := x.Close(t); err == nil {
		err = cerr
	}
	return err
}

// testFiles are the names of the test files.
func testFiles(files int) []string {
	if files == 0 {
		return []string{TestFile}
	}
	var names []string
	for i := range files {
		names = append(names, fmt.Sprintf("%s.%d", TestFile, i))
	}
	return names
}

func prepare(t *sched.Task, x *fs.FS, size int64, files int, kind Kind) error {
	for _, name := range testFiles(files) {
		if files == 0 {
			break
		}
		if err := x.Unlink(t, name); err != nil && !errors.Is(err, errno.ENOENT) {
			return err
		}
		f, err := x.Create(t, name, 0o644)
		if err == nil && kind == Nocow {
			err = f.SetFlags(t, format.InodeNoDataCow|format.InodeNoDataSum)
		}
		if err == nil {
			err = f.Truncate(t, size/int64(files))
			err = errors.Join(err, f.Close(t))
		}
		if err != nil {
			return err
		}
	}
	if files > 0 {
		return nil
	}
	if err := x.Unlink(t, TestFile); err != nil && !errors.Is(err, errno.ENOENT) {
		return err
	}
	f, err := x.Create(t, TestFile, 0o644)
	if err != nil {
		return err
	}
	if kind == Cow {
		err = f.Truncate(t, size)
	} else if err = f.SetFlags(t, format.InodeNoDataCow|format.InodeNoDataSum); err == nil {
		err = f.Fallocate(t, 0, 0, size)
	}
	if cerr := f.Close(t); err == nil {
		err = cerr
	}
	return err
}

// Open opens the image and the test file under a policy (policy.Parse).
func (r *Rig) Open(t *sched.Task, spec string) (experiment.Session, error) {
	return r.openSession(t, r.dev, spec)
}

// OpenRaw is Open past the latency model; it makes the Rig an experiment.RawOpener.
func (r *Rig) OpenRaw(t *sched.Task, spec string) (experiment.Session, error) {
	return r.openSession(t, r.raw, spec)
}

func (r *Rig) openSession(t *sched.Task, dev blockdev.Device, spec string) (experiment.Session, error) {
	x, err := r.openFS(t, dev, spec)
	if err != nil {
		return nil, err
	}
	s := &session{x: x, size: r.size / int64(max(r.cfg.Files, 1))}
	for _, name := range testFiles(r.cfg.Files) {
		f, err := x.OpenFile(t, name, fs.O_RDWR, 0)
		if err != nil {
			return nil, errors.Join(err, s.Close(t))
		}
		s.files = append(s.files, f)
	}
	return s, nil
}

// OpenFS opens the image under a policy.
func (r *Rig) OpenFS(t *sched.Task, spec string) (*fs.FS, error) { return r.openFS(t, r.dev, spec) }

func (r *Rig) openFS(t *sched.Task, dev blockdev.Device, spec string) (*fs.FS, error) {
	o, err := r.options(t, spec)
	if err != nil {
		return nil, err
	}
	return fs.Open(t, []blockdev.Device{dev}, o)
}

func (r *Rig) options(t *sched.Task, spec string) (fs.Options, error) {
	p, err := policy.Parse(spec)
	if err != nil {
		return fs.Options{}, err
	}
	o := fs.Options{Policy: &p, DirtyBackground: r.cfg.DirtyBackground, DirtyLimit: r.cfg.DirtyLimit,
		Memory: r.cfg.Memory, CacheLimit: r.cfg.CacheLimit, NoPayload: r.cfg.NoPayload, EndioWorkers: r.cfg.EndioWorkers, EndioNewest: r.cfg.EndioNewest,
		CommitInterval: r.cfg.CommitInterval, Lab: iopath.Lab{SmallLeaf: r.cfg.SmallLeaf}}
	if o.DirtyLimit == 0 && r.size > 0 {
		o.DirtyBackground, o.DirtyLimit = r.size/16, r.size/8
	}
	if o.NoPayload && o.CacheLimit == 0 {
		// Pages without bytes cost a hundred bytes each; most of a large file has no business in
		// memory.
		o.CacheLimit = max(2*o.DirtyLimit, fs.DefaultDirtyLimit)
	}
	if t.Runtime() != nil {
		o.Now = func() time.Time { return time.Unix(0, t.Now()) }
	}
	return o, nil
}

type session struct {
	x     *fs.FS
	files []*fs.File
	size  int64 // of each
}

func (s *session) File() fio.Target {
	if len(s.files) == 1 {
		return s.files[0]
	}
	return experiment.Spread(s.Parts(), s.size)
}

// Parts makes the session an experiment.Parts.
func (s *session) Parts() (list []fio.Target) {
	for _, f := range s.files {
		list = append(list, f)
	}
	return list
}

func (s *session) Close(t *sched.Task) (err error) {
	for _, f := range s.files {
		err = errors.Join(err, f.Close(t))
	}
	return errors.Join(err, s.x.Close(t))
}

// Check judges the image with progs/check; without payload the checksums of data are left out.
func (r *Rig) Check(t *sched.Task) ([]string, error) {
	res, err := check.Check(t, r.raw, check.Options{NoData: r.cfg.NoPayload})
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, f := range res.Findings {
		lines = append(lines, f.String())
	}
	return lines, nil
}

// Files opens the files of a fio job in x, and makes those that are not there. A name is a path in
// the image.
type Files struct {
	x     *fs.FS
	nocow bool
	open  []*fs.File
}

// NewFiles is for one run on x; nocow makes new files NOCOW.
func NewFiles(x *fs.FS, nocow bool) *Files { return &Files{x: x, nocow: nocow} }

// Open is fio.Options.Open.
func (s *Files) Open(t *sched.Task, _ *fio.Job, name string) (fio.Target, error) {
	path := gopath.Join("/", name)
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if err := s.x.Mkdir(t, path[:i], 0o755); err != nil && !errors.Is(err, errno.EEXIST) {
			return nil, fmt.Errorf("%s: %w", path[:i], err)
		}
	}
	f, err := s.x.OpenFile(t, path, fs.O_RDWR|fs.O_CREAT|fs.O_EXCL, 0o644)
	made := err == nil
	if errors.Is(err, errno.EEXIST) {
		f, err = s.x.OpenFile(t, path, fs.O_RDWR, 0)
	}
	if err != nil {
		if op := (*errno.OpError)(nil); errors.As(err, &op) && op.Path == path {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.open = append(s.open, f)
	if made && s.nocow {
		if err := f.SetFlags(t, format.InodeNoDataCow|format.InodeNoDataSum); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Close closes the files.
func (s *Files) Close(t *sched.Task) error {
	var err error
	for _, f := range s.open {
		if cerr := f.Close(t); err == nil {
			err = cerr
		}
	}
	s.open = nil
	return err
}
