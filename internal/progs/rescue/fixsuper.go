package rescue

import (
	"bytes"
	"errors"
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// FixSuper writes the newest whole superblock of each device over those that are not whole, and
// returns these. A device without a whole one is an error, and nothing is written to any.
//
// Model: btrfs-progs: rescue super-recover. Difference: it does not ask, and a copy that is whole
// and older stays as it is.
func FixSuper(t *sched.Task, devs []blockdev.Device) (fixed []image.SuperCopy, err error) {
	best := map[string]*image.SuperCopy{}
	all := image.Supers(t, devs...)
	for i := range all {
		s := &all[i]
		var unsupported *format.UnsupportedError
		if errors.As(s.Err, &unsupported) {
			return nil, blockdev.Errorf(s.Dev, "%w", s.Err)
		}
		if b := best[s.Device]; s.Err == nil && (b == nil || s.Generation > b.Generation) {
			best[s.Device] = s
		}
	}
	for _, d := range devs {
		if best[d.Name()] == nil {
			return nil, blockdev.Errorf(d, "no superblock is whole")
		}
	}
	for _, s := range all {
		b := best[s.Device]
		if s.Err == nil || int64(s.Bytenr)+format.SuperSize > int64(b.Super.DevItem.TotalBytes) {
			continue
		}
		p := bytes.Clone(b.Raw)
		le.PutUint64(p[superBytenr:], s.Bytenr)
		sum := b.Super.CsumType.Sum(p[format.CsumField:])
		copy(p, sum[:])
		if err := blockdev.Write(t, s.Dev, p, int64(s.Bytenr)); err != nil {
			return fixed, blockdev.Errorf(s.Dev, "write of the superblock at %d: %w", s.Bytenr, err)
		}
		s.Generation = b.Generation
		fixed = append(fixed, s)
	}
	for _, d := range devs {
		if err := blockdev.Flush(t, d); err != nil {
			return fixed, fmt.Errorf("flush: %w", err)
		}
	}
	return fixed, nil
}

// superBytenr is where a superblock has its own address, in bytes.
const superBytenr = 0x30

// OlderRoot makes the superblocks point at the root tree of an earlier transaction, one of the four
// that they have as backups: of the generation, or if that is 0 the newest that is older than the
// present one and whose root can be read. What was written since is lost, as is a log. It returns
// the generation.
//
// Only the root block is looked at: a later transaction may have written over blocks of the older
// trees.
//
// Model: mount -o usebackuproot. Difference: that writes nothing before the next commit.
func OlderRoot(t *sched.Task, devs []blockdev.Device, generation uint64) (uint64, error) {
	im, err := Open(t, devs, Options{})
	if err != nil {
		return 0, err
	}
	if !im.supers {
		return 0, blockdev.Errorf(devs[0], "no superblock is whole, and none has backups")
	}
	var have []uint64
	var pick *format.RootBackup
	for i := range im.SB.Backups {
		b := &im.SB.Backups[i]
		if b.TreeRoot == 0 || b.TreeRootGen >= im.SB.Generation || im.block(refOf(format.ROOT_TREE_OBJECTID, b.TreeRoot, b.TreeRootGen, b.TreeRootLevel), false) == nil {
			continue
		}
		have = append(have, b.TreeRootGen)
		if (generation == 0 || b.TreeRootGen == generation) && (pick == nil || b.TreeRootGen > pick.TreeRootGen) {
			pick = b
		}
	}
	if pick == nil {
		return 0, blockdev.Errorf(devs[0], "no older root of generation %d, have %v", generation, have)
	}
	back := *pick
	for _, s := range image.Supers(t, devs...) {
		if s.Err != nil {
			continue
		}
		n := s.Super
		n.Generation, n.Root, n.RootLevel = back.TreeRootGen, back.TreeRoot, back.TreeRootLevel
		n.ChunkRoot, n.ChunkRootLevel, n.ChunkRootGeneration = back.ChunkRoot, back.ChunkRootLevel, back.ChunkRootGen
		n.TotalBytes, n.BytesUsed, n.NumDevices = back.TotalBytes, back.BytesUsed, back.NumDevices
		n.LogRoot, n.LogRootLevel = 0, 0
		if n.CacheGeneration != ^uint64(0) {
			n.CacheGeneration = min(n.CacheGeneration, back.TreeRootGen)
		}
		n.Encode(s.Raw)
		if err := blockdev.Write(t, s.Dev, s.Raw, int64(s.Bytenr)); err != nil {
			return 0, blockdev.Errorf(s.Dev, "write of the superblock at %d: %w", s.Bytenr, err)
		}
	}
	for _, d := range devs {
		if err := blockdev.Flush(t, d); err != nil {
			return 0, fmt.Errorf("flush: %w", err)
		}
	}
	return back.TreeRootGen, nil
}
