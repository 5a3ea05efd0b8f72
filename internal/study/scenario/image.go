package scenario

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

const (
	imageSize  = 128 << 20
	secondName = "/second"
)

// FileName is the path of a scenario's file.
const FileName = "/file"

// epoch is the time of everything: two runs of a scenario differ in nothing.
var epoch = time.Unix(1526428800, 0) // the day seed 002 was posted

func now() time.Time { return epoch }

// layout is what a profile of data asks of the image.
type layout struct {
	devices  int
	metadata string // its profile
	bears    int    // devices that may be lost
}

// layouts are those of Scenario.Profile.
var layouts = map[string]layout{"": {1, "single", 0}, "raid5": {3, "raid1", 1}, "raid6": {4, "raid1c3", 2}}

// profiles are the profiles of data that a scenario can name.
var profiles = []string{"raid5", "raid6"}

// blanks are functions that return formatted devices, by the profile of data. Each formats once.
var blanks sync.Map

func blank(profile string) ([]*blockdev.Memory, error) {
	devs, _ := blanks.LoadOrStore(profile, sync.OnceValues(func() ([]*blockdev.Memory, error) { return layouts[profile].format(profile) }))
	return devs.(func() ([]*blockdev.Memory, error))()
}

func (l layout) format(profile string) ([]*blockdev.Memory, error) {
	var devs []*blockdev.Memory
	for range l.devices {
		devs = append(devs, blockdev.NewMemory(imageSize))
	}
	id := func(b byte) (u format.UUID) {
		for i := range u {
			u[i] = b
		}
		return u
	}
	err := mkfs.Make(sched.NewTask("mkfs"), devs[0], mkfs.Options{Label: "scenario", MetadataProfile: l.metadata, DataProfile: profile, Devices: devices(devs[1:]),
		Now: epoch, FSID: id(1), DevUUID: id(2), ChunkTreeUUID: id(3), SubvolUUID: id(4)})
	return devs, err
}

// images are functions that return the devices of scenarios, by Image or name. Each makes them
// once. Nobody writes them.
var images sync.Map

// prepare makes the devices of a scenario, its file on disk, or finds them.
func (s *Scenario) prepare() ([]*blockdev.Memory, error) {
	name := s.Image
	if name == "" {
		name = s.Name
	}
	devs, _ := images.LoadOrStore(name, sync.OnceValues(s.make))
	return devs.(func() ([]*blockdev.Memory, error))()
}

// Disk is the disk that the scenario begins with, its file on it. Nothing of it is in memory yet.
// Do not write it: a Snapshot may be. A scenario with a Profile has several disks, and no Disk.
func (s *Scenario) Disk() (*blockdev.Memory, error) {
	devs, err := s.prepare()
	switch {
	case err != nil:
		return nil, err
	case len(devs) > 1:
		return nil, fmt.Errorf("scenario %s: have %d devices, want one", s.Name, len(devs))
	}
	return devs[0], nil
}

func (s *Scenario) make() ([]*blockdev.Memory, error) {
	base, err := blank(s.Profile)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	var devs []*blockdev.Memory
	for _, d := range base {
		devs = append(devs, d.Snapshot())
	}
	if err := s.prepareOn(sched.NewTask("prepare"), devs); err != nil {
		return nil, fmt.Errorf("scenario %s: prepare: %w", s.Name, err)
	}
	return devs, nil
}

func devices(memory []*blockdev.Memory) (l []blockdev.Device) {
	for _, d := range memory {
		l = append(l, d)
	}
	return l
}

func (s *Scenario) prepareOn(t *sched.Task, devs []*blockdev.Memory) error {
	x, err := fs.Open(t, devices(devs), fs.Options{Now: now, Memory: fs.NoLimit})
	if err != nil {
		return err
	}
	f, err := x.Create(t, FileName, 0o644)
	if err != nil {
		return err
	}
	if s.File.Nocow {
		if err := f.SetFlags(t, f.Flags()|format.InodeNoDataCow); err != nil {
			return err
		}
	}
	at := s.File.At
	if at > 0 {
		if err := f.Truncate(t, at); err != nil {
			return err
		}
	}
	if s.File.Prealloc > 0 {
		if err := f.Fallocate(t, fs.FALLOC_FL_KEEP_SIZE, at, s.File.Prealloc); err != nil {
			return err
		}
	}
	if s.File.Unwritten > 0 && !s.File.Compressed {
		if err := f.Fallocate(t, 0, at, s.File.Unwritten); err != nil {
			return err
		}
	}
	if s.File.Size > 0 {
		p := s.content(false, s.File.Size)
		step := s.File.Size
		if s.File.Extent > 0 {
			step = s.File.Extent
		}
		for off := int64(0); off < s.File.Size; off += step {
			if _, err := f.WriteAt(t, p[off:min(off+step, s.File.Size)], at+off); err != nil {
				return err
			}
			if s.File.Extent > 0 {
				if err := x.Sync(t); err != nil {
					return err
				}
			}
		}
	}
	if s.Second > 0 {
		if err := makeSecond(t, x, s.content(true, s.Second)); err != nil {
			return err
		}
	}
	if s.FillTo > 0 {
		if err := fill(t, x, s.FillTo); err != nil {
			return err
		}
	}
	if s.Quota > 0 {
		if err := x.EnableQuota(t); err != nil {
			return err
		}
		if err := limit(t, x, s.Quota); err != nil {
			return err
		}
	}
	if err := f.Close(t); err != nil {
		return err
	}
	return x.Close(t)
}

// makeSecond makes the second file, which has the bytes p.
func makeSecond(t *sched.Task, x *fs.FS, p []byte) error {
	f, err := x.Create(t, secondName, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(t, p, 0); err != nil {
		return err
	}
	return f.Close(t)
}

// limit leaves the top-level subvolume left bytes. Quotas are on.
func limit(t *sched.Task, x *fs.FS, left uint64) error {
	q, err := x.Quotas(t)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(q.Groups, func(g fs.Qgroup) bool { return g.ID == format.FS_TREE_OBJECTID })
	return x.LimitQuota(t, format.FS_TREE_OBJECTID, q.Groups[i].Rfer+left, false, false)
}

// fill leaves about left bytes for data.
func fill(t *sched.Task, x *fs.FS, left int64) error {
	if err := x.Sync(t); err != nil {
		return err
	}
	f, err := x.Create(t, "/fill", 0o644)
	if err != nil {
		return err
	}
	for n := int64(32 << 20); n >= 4096; {
		st := x.Statfs(t)
		free := int64(st.Free)
		if free <= left {
			break
		}
		size := f.Stat(t).Size
		if err := f.Fallocate(t, 0, int64(size), min(n, free-left)&^4095); err != nil {
			n /= 2
		}
	}
	return f.Close(t)
}

// options are the file system's for an execution.
func (s *Scenario) options(p *policy.Policy) fs.Options {
	lab := s.lab.Under(p)
	lab.Write, lab.File = nil, nil // until the tasks begin
	return fs.Options{Policy: p, Now: now, EndioWorkers: 1, CacheBlocks: 256, Memory: fs.NoLimit, DirtyLimit: s.DirtyLimit, DirtyBackground: s.DirtyLimit / 2,
		Lab: lab}
}
