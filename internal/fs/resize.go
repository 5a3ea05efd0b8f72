package fs

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// minDevice is the smallest size of a device, in bytes: what Linux asks for in a resize.
const minDevice = 256 << 20

// Resize gives device devid size bytes, rounded down to whole sectors; zero is as small as it can
// be made by cutting what is free out of the chunks and moving the last stripes into holes. What
// lies beyond is moved, each stripe with a commit of its own, so that a crash leaves the old size
// or the new one, and everything readable; chunks are cut only if there is no hole otherwise. It
// returns the size, and says how many stripes have moved.
//
// Errors: EINVAL for no such device, a size that the device under it has not, or one below 256 MiB
// when it is to shrink; ENOSPC when no hole has room for a stripe: those before it have moved.
// After an error the superblocks say which size the file system has.
//
// Models fs/btrfs/volumes.c:btrfs_grow_device() and btrfs_shrink_device(). Difference: stripes
// move, and keep their logical addresses; see volumes.MoveStripe and extenttree.Trim.
//
// Preconditions: no other task uses the file system.
func (f *FS) Resize(t *sched.Task, devid, size uint64) (now uint64, moved int, err error) {
	if err := f.writable(); err != nil {
		return 0, 0, err
	}
	d, err := f.device(devid)
	switch {
	case err != nil:
		return 0, 0, err
	case size > uint64(d.Size()):
		return 0, 0, fmt.Errorf("size %d, the device has %d bytes: %w", size, d.Size(), errno.EINVAL)
	case size != 0 && size < min(minDevice, d.Item().TotalBytes):
		return 0, 0, fmt.Errorf("size %d, want at least %d: %w", size, min(minDevice, d.Item().TotalBytes), errno.EINVAL)
	}
	size = format.AlignDown(size, format.SectorSize)
	if err := f.Sync(t); err != nil {
		return 0, 0, err
	}
	if size == 0 {
		if err := f.trim(t); err != nil {
			return 0, 0, err
		}
	}
	for trimmed := size == 0; ; {
		limit := size
		beyond := f.vols.Beyond(d, limit)
		if size == 0 { // the last stripe goes before its own place, as long as it can
			limit = beyond[0].From.Offset
		}
		if len(beyond) == 0 {
			break
		}
		m := beyond[0]
		err := f.vols.MoveStripe(t, &m, limit)
		if err != nil && size == 0 {
			c, _ := f.vols.Lookup(m.Logical)
			size = m.From.Offset + c.Chunk.StripeBytes()
			break
		}
		if errors.Is(err, errno.ENOSPC) && !trimmed {
			trimmed = true
			if err = f.trim(t); err == nil {
				continue
			}
		}
		if err == nil {
			err = f.change(t, func(h *transaction.Handle) error { return f.trans.Extents.MoveStripe(t, h.Trans(), m) })
		}
		if err != nil {
			return 0, moved, err
		}
		moved++
	}
	old := d.Item().TotalBytes
	f.vols.SetSize(t, d, size)
	f.trans.AddTotalBytes(int64(size) - int64(old))
	err = f.change(t, func(h *transaction.Handle) error {
		return f.trans.Extents.ResizeDevice(t, h.Trans(), slices.Index(f.vols.Devices(), d), size)
	})
	if err == nil {
		err = d.WipeSupers(t)
	}
	return size, moved, err
}

// What trim leaves.
const (
	trimLeast   = 1 << 20  // of data: a free range that stays is shorter
	trimReserve = 16 << 20 // of metadata, for the commits to come, and a fourth of what there is
)

// trim gives the devices back what is free in the block groups, each in a commit of its own.
func (f *FS) trim(t *sched.Task) error {
	for _, c := range slices.Backward(slices.Clone(f.vols.Chunks())) {
		budget := ^uint64(0)
		if c.Chunk.Type&format.BlockGroupMetadata != 0 {
			u := f.trans.Space.Of(c.Chunk.Type).Usage(t)
			keep := u.Used + u.Readonly + u.Used/4 + trimReserve
			budget = u.Total - min(u.Total, keep)
		}
		other := func(o volumes.ChunkInfo) bool { return o.Logical != c.Logical && o.Chunk.Type == c.Chunk.Type }
		// The last one of a type has the profile of those to come.
		if !slices.ContainsFunc(f.vols.Chunks(), other) {
			budget = min(budget, c.Chunk.Length-min(c.Chunk.Length, trimLeast))
		}
		if budget < trimLeast {
			continue
		}
		err := f.change(t, func(h *transaction.Handle) error {
			gone, err := f.trans.Extents.Trim(t, h.Trans(), c.Logical, trimLeast, budget)
			if err == nil && gone > 0 {
				err = f.trans.SpoilSpaceCache(t, h, c.Logical)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("cut the chunk at %d: %w", c.Logical, err)
		}
	}
	return nil
}

// change does something in a transaction of its own, which is committed.
func (f *FS) change(t *sched.Task, do func(h *transaction.Handle) error) error {
	h, err := f.trans.Start(t, 4)
	if err != nil {
		return err
	}
	if err := f.end(t, h, do(h)); err != nil {
		return err
	}
	return f.Sync(t)
}

// SetLabel names the file system; the label is durable with the next commit. EINVAL for more than
// 255 bytes, a newline or a NUL. Models btrfs_ioctl_set_fslabel().
func (f *FS) SetLabel(t *sched.Task, label string) error {
	if err := f.writable(); err != nil {
		return err
	}
	if !format.LabelOK(label) {
		return errno.EINVAL
	}
	h, err := f.trans.Start(t, 1)
	if err != nil {
		return err
	}
	f.trans.SetLabel(label)
	return f.end(t, h, nil)
}

// Trim gives the place of what is free back to the devices, in ranges of at least least bytes, so
// that an image file takes only what is in it: fstrim(8). It returns how many bytes that was.
// EOPNOTSUPP when a device cannot. Other tasks may use the file system.
//
// Models btrfs_ioctl_fitrim().
func (f *FS) Trim(t *sched.Task, least uint64) (bytes uint64, err error) {
	if err := f.writable(); err != nil {
		return 0, err
	}
	if err := f.Sync(t); err != nil {
		return 0, err
	}
	return f.trans.Extents.DiscardFree(t, least)
}
