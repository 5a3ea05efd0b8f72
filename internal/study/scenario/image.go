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

// blank is a formatted image, made once.
var blank = sync.OnceValues(func() (*blockdev.Memory, error) {
	dev := blockdev.NewMemory(imageSize)
	id := func(b byte) (u format.UUID) {
		for i := range u {
			u[i] = b
		}
		return u
	}
	err := mkfs.Make(sched.NewTask("mkfs"), dev, mkfs.Options{Label: "scenario", MetadataProfile: "single", Now: epoch,
		FSID: id(1), DevUUID: id(2), ChunkTreeUUID: id(3), SubvolUUID: id(4)})
	return dev, err
})

// images are functions that return the images of scenarios, by Image or name. Each makes its image
// once. Nobody writes them.
var images sync.Map

// prepare makes the image of a scenario, its file on disk, or finds it.
func (s *Scenario) prepare() (*blockdev.Memory, error) {
	name := s.Image
	if name == "" {
		name = s.Name
	}
	image, _ := images.LoadOrStore(name, sync.OnceValues(s.make))
	return image.(func() (*blockdev.Memory, error))()
}

// Disk is the disk that the scenario begins with, its file on it. Nothing of it is in memory yet.
// Do not write it: a Snapshot may be.
func (s *Scenario) Disk() (*blockdev.Memory, error) { return s.prepare() }

func (s *Scenario) make() (*blockdev.Memory, error) {
	base, err := blank()
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	dev := base.Snapshot()
	if err := s.prepareOn(sched.NewTask("prepare"), dev); err != nil {
		return nil, fmt.Errorf("scenario %s: prepare: %w", s.Name, err)
	}
	return dev, nil
}

func (s *Scenario) prepareOn(t *sched.Task, dev *blockdev.Memory) error {
	x, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{Now: now, Memory: fs.NoLimit})
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
