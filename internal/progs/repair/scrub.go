package repair

import (
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// ScrubStats counts what a scrub has read of a device, in bytes, and the errors it has met. Those
// of copies are counted in sectors: each sector of a tree block that is bad is one of Verify.
// Every one of Read, Csum, Verify and Parity is one of Corrected or of Uncorrectable, too.
//
// Model: struct btrfs_scrub_progress. Differences: Parity, which Linux mends and does not count;
// what counts the work of a kernel is left out.
type ScrubStats struct {
	Data          uint64 `json:"data_bytes_scrubbed"`
	Tree          uint64 `json:"tree_bytes_scrubbed"`
	Read          uint64 `json:"read_errors"`
	Csum          uint64 `json:"csum_errors"`
	Verify        uint64 `json:"verify_errors"`
	NoCsum        uint64 `json:"no_csum"`
	Super         uint64 `json:"super_errors"`
	Parity        uint64 `json:"parity_errors"`
	Uncorrectable uint64 `json:"uncorrectable_errors"`
	Unverified    uint64 `json:"unverified_errors"`
	Corrected     uint64 `json:"corrected_errors"`
}

// Add adds the counts of another device.
func (s *ScrubStats) Add(o *ScrubStats) {
	for _, x := range []struct {
		to *uint64
		n  uint64
	}{{&s.Data, o.Data}, {&s.Tree, o.Tree}, {&s.Read, o.Read}, {&s.Csum, o.Csum}, {&s.Verify, o.Verify}, {&s.NoCsum, o.NoCsum}, {&s.Super, o.Super},
		{&s.Parity, o.Parity}, {&s.Uncorrectable, o.Uncorrectable}, {&s.Unverified, o.Unverified}, {&s.Corrected, o.Corrected}} {
		*x.to += x.n
	}
}

// Errors is the number of errors of all kinds.
func (s *ScrubStats) Errors() uint64 { return s.Read + s.Csum + s.Verify + s.Super + s.Parity }

// ScrubDevice is what a scrub has found on a device. Used are the bytes of it in chunks.
type ScrubDevice struct {
	Name  string `json:"name"`
	Devid uint64 `json:"devid"`
	Used  uint64 `json:"bytes_used"`
	ScrubStats
}

// Scrubbed is the result of a scrub.
type Scrubbed struct {
	FSID    format.UUID
	Devices []ScrubDevice
	Lost    []check.Finding // what is bad on every copy
	Notes   []string
}

// Total adds up the devices.
func (s *Scrubbed) Total() (sum ScrubStats, used uint64) {
	for i := range s.Devices {
		sum.Add(&s.Devices[i].ScrubStats)
		used += s.Devices[i].Used
	}
	return sum, used
}

// ScrubOptions are those of a scrub.
type ScrubOptions struct {
	ReadOnly bool // nothing is written
	Progress func(phase string, done, total uint64)
	// Stopped, if set, is asked now and then; an error of it ends the scrub. What has been written
	// by then stays.
	Stopped func() error
}

// Scrub reads every copy of everything, and writes what is whole over what is bad: superblocks,
// tree blocks, data and parity. Nothing is written that has not the checksum that it must have. The
// error is for what cannot be read at all, and for a write that fails.
//
// Model: btrfs scrub start -B, fs/btrfs/scrub.c. Differences: a device whose superblocks are all
// older, which has missed commits, is noted, and keeps them.
func Scrub(t *sched.Task, devs []blockdev.Device, o ScrubOptions) (*Scrubbed, error) {
	s := &scrub{t: t, o: o, devs: devs, mended: map[int][]check.Span{}, lost: map[int][]check.Span{}}
	s.r.Devices = make([]ScrubDevice, len(devs))
	for i, d := range devs {
		s.covers = append(s.covers, dm.NewOverlay(d, nil))
		if err := s.supers(i); err != nil {
			return nil, err
		}
	}
	for again := true; again; {
		var err error
		if again, err = s.round(); err != nil {
			return nil, err
		}
		if err := s.stopped(); err != nil {
			return nil, err
		}
	}
	return &s.r, s.commitSupers()
}

// scrub is one on its way.
type scrub struct {
	t      *sched.Task
	o      ScrubOptions
	devs   []blockdev.Device
	covers []*dm.Overlay // over devs: with the superblocks that are mended, until the end
	r      Scrubbed
	seen   *check.Seen
	rounds int
	wrote  bool // the round has

	// Places by device, merged: that have been mended, and that cannot be.
	mended, lost map[int][]check.Span
}

func (s *scrub) stopped() error {
	if s.o.Stopped == nil {
		return nil
	}
	return s.o.Stopped()
}

// supers mends the superblocks of a device in its cover, by the newest that is whole.
func (s *scrub) supers(i int) error {
	list := image.Supers(s.t, s.covers[i])
	var best *image.SuperCopy
	for j := range list {
		if c := &list[j]; c.Err == nil && (best == nil || c.Generation > best.Generation) {
			best = c
		}
	}
	if best == nil {
		return nil // the check says why
	}
	for j := range list {
		c := &list[j]
		switch {
		case int64(c.Bytenr)+format.SuperSize > int64(best.Super.DevItem.TotalBytes):
			continue // what is there belongs to nobody
		case c.Raw != nil && best.Super.Metadump() && format.SuperMagic(c.Raw) == 0:
			continue // btrfs-image restores no copies
		case c.Err == nil && c.Generation == best.Generation && check.SameSuper(c.Raw, best.Raw):
			continue
		}
		s.r.Devices[i].Super++
		if err := blockdev.Write(s.t, s.covers[i], superAt(best.Raw, best.Super.CsumType, c.Bytenr), int64(c.Bytenr)); err != nil {
			return err
		}
	}
	return nil
}

// commitSupers writes the superblocks that are mended, after all else is durable.
func (s *scrub) commitSupers() error {
	if s.o.ReadOnly {
		return nil
	}
	for i, c := range s.covers {
		if err := blockdev.Flush(s.t, s.devs[i]); err != nil {
			return err
		}
		for _, off := range c.Written(s.t) {
			p := make([]byte, format.SuperSize)
			if err := blockdev.Read(s.t, c, p, off); err != nil {
				return err
			}
			if err := blockdev.Write(s.t, s.devs[i], p, off); err != nil {
				return blockdev.Errorf(s.devs[i], "write of the superblock at %d: %w", off, err)
			}
		}
		if err := blockdev.Flush(s.t, s.devs[i]); err != nil {
			return err
		}
	}
	return nil
}

// round reads all, mends what it can, and reports whether to read all again: after writes, to see
// that they are right, and what is beyond the places that a check keeps.
func (s *scrub) round() (again bool, err error) {
	more := []blockdev.Device{}
	for _, c := range s.covers[1:] {
		more = append(more, c)
	}
	var res check.Result
	if res, s.seen, err = check.Examine(s.t, s.covers[0], check.Options{Devices: more, Copies: true, Progress: s.o.Progress}); err != nil {
		return false, err
	}
	if i := slices.IndexFunc(res.Findings, func(f check.Finding) bool { return f.Rule == "super.bad" }); i >= 0 {
		return false, fmt.Errorf("%s: no superblock of the device is whole", res.Findings[i].Place)
	}
	if s.rounds == 0 {
		s.first(res)
	}
	s.rounds++
	s.wrote, s.r.Lost = false, nil
	lost := map[check.Place]bool{}
	for i := range s.seen.BadCopies {
		if err := s.stopped(); err != nil {
			return false, err
		}
		b := &s.seen.BadCopies[i]
		whole, err := s.bad(b)
		if err != nil {
			return false, err
		}
		if !whole {
			lost[b.Where] = true
		}
	}
	if !s.wrote || s.o.ReadOnly { // else the parity is judged by data that is mended
		if err := s.parity(); err != nil {
			return false, err
		}
	}
	for _, f := range res.Findings {
		if lost[f.Place] {
			s.r.Lost = append(s.r.Lost, f)
		}
	}
	if again = s.wrote && !s.o.ReadOnly && s.rounds < roundsMax; !again && s.seen.MoreBad {
		s.r.Notes = append(s.r.Notes, "there is more than is counted: another scrub finds it")
	}
	return again, nil
}

// first takes what the first reading tells of the devices.
func (s *scrub) first(res check.Result) {
	s.r.FSID = s.seen.Super.FSID
	for i, d := range s.seen.Devs {
		r := &s.r.Devices[i]
		r.Name, r.Devid, r.Used = d.Name(), d.ID(), d.Super.DevItem.BytesUsed
		r.Data, r.Tree, r.NoCsum = d.Scanned.Data, d.Scanned.Tree, d.Scanned.NoCsum/uint64(s.seen.Super.SectorSize)
	}
	for _, f := range res.Findings {
		if f.Rule == "super.device" {
			s.r.Notes = append(s.r.Notes, f.String()+"; "+f.Means)
		}
	}
}

// bad counts and mends a bad copy, and reports whether all of it is.
func (s *scrub) bad(b *check.Bad) (whole bool, err error) {
	dev := slices.Index(s.seen.Devs, b.At.Dev)
	kind := &s.r.Devices[dev].Csum
	switch {
	case b.Unread:
		kind = &s.r.Devices[dev].Read
	case b.Tree:
		kind = &s.r.Devices[dev].Verify
	}
	sector := int(s.seen.Super.SectorSize)
	p, known, _ := made(s.seen, b)
	for i := range known {
		known[i] = s.count(dev, b.At.Off+uint64(i*sector), kind, known[i])
	}
	err = runs(known, sector, func(start, end int) error {
		return s.write(dev, p[start:end], b.At.Off+uint64(start))
	})
	return !slices.Contains(known, false), err
}

// count counts a bad sector of a device as one of a kind, and reports whether it is to be written.
// What is bad again after it was mended is lost: the device does not keep it.
func (s *scrub) count(dev int, off uint64, kind *uint64, known bool) bool {
	r := &s.r.Devices[dev]
	switch {
	case within(s.lost[dev], off):
		return false
	case within(s.mended[dev], off):
		r.Corrected--
		known = false
	default:
		*kind++
	}
	if known {
		r.Corrected++
		return true
	}
	r.Uncorrectable++
	s.lost[dev] = joined(s.lost[dev], check.Span{Start: off, End: off + uint64(s.seen.Super.SectorSize)})
	return false
}

// write writes to a device, unless nothing is to be written.
func (s *scrub) write(dev int, p []byte, off uint64) error {
	s.wrote = true
	if s.o.ReadOnly {
		return nil
	}
	s.mended[dev] = joined(s.mended[dev], check.Span{Start: off, End: off + uint64(len(p))})
	if err := blockdev.Write(s.t, s.devs[dev], p, int64(off)); err != nil {
		return blockdev.Errorf(s.devs[dev], "write of %d bytes at %d: %w", len(p), off, err)
	}
	return nil
}

// parity counts and mends the parity of rows whose data is whole.
func (s *scrub) parity() error {
	bad := badPlaces(s.seen)
	for _, row := range s.seen.BadRows {
		for _, u := range parityOf(s.seen, row, bad) {
			dev := slices.Index(s.seen.Devs, u.at.Dev)
			if !s.count(dev, u.at.Off, &s.r.Devices[dev].Parity, true) {
				continue
			}
			if err := s.write(dev, u.want, u.at.Off); err != nil {
				return err
			}
		}
	}
	return nil
}
