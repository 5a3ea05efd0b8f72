package mkfs

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"btrlab/internal/format"
)

// packed are the files of a directory that have nothing out of the ordinary, by name, in some forty
// bytes each where an Entry takes ten times as much: that is how a tree of ten million files is
// listed in half a gigabyte.
type packed struct {
	// data has of each file its permissions' place in attrs, the size, both times in nanoseconds
	// (the second as the difference to the first), and the name.
	data   string
	n      int
	attrs  []packedAttrs
	source any // of those whose attrs say so
}

// packedAttrs are what most files of a directory have in common.
type packedAttrs struct {
	mode, uid, gid uint32
	sourced        bool
}

// attrsMax is how many sets of attributes a packed directory has: they are searched one by one.
const attrsMax = 256

// packs reports whether e can be packed with the source.
func (e *Entry) packs(source any) bool {
	return e.isRegular() && e.Link == nil && !e.Several && !e.Subvol && !e.ReadOnly && !e.Default && e.Flags == 0 && e.Rdev == 0 && e.Target == "" &&
		len(e.Entries) == 0 && len(e.Name) <= format.MaxNameLen && (e.Source == nil || e.Source == source) && packsTime(e.Atime) && packsTime(e.Mtime)
}

// packsTime reports whether UnixNano is right: from 1678 to 2262.
func packsTime(t time.Time) bool { return time.Unix(0, t.UnixNano()).Equal(t) }

// Pack makes the files of the directory d small: those that are no other entry's Link, have no
// flags, and no Source but nil or the one given. Those beyond some hundred owners and modes stay as
// they are. Children gives them as entries that are overwritten by the next one, Unpack makes them
// entries again.
func (d *Entry) Pack(source any) {
	d.Unpack()
	slices.SortStableFunc(d.Entries, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
	p := &packed{source: source}
	var data []byte
	rest := d.Entries[:0]
	for _, e := range d.Entries {
		if !e.packs(source) {
			rest = append(rest, e)
			continue
		}
		a := packedAttrs{e.Mode, e.UID, e.GID, e.Source != nil}
		i := slices.Index(p.attrs, a)
		if i < 0 && len(p.attrs) == attrsMax {
			rest = append(rest, e)
			continue
		}
		if i < 0 {
			i = len(p.attrs)
			p.attrs = append(p.attrs, a)
		}
		data = binary.AppendUvarint(data, uint64(i))
		data = binary.AppendVarint(data, e.Size)
		mtime := e.Mtime.UnixNano()
		data = binary.AppendVarint(data, mtime)
		data = binary.AppendVarint(data, e.Atime.UnixNano()-mtime)
		data = append(append(data, byte(len(e.Name))), e.Name...)
		p.n++
	}
	if p.n == 0 {
		return
	}
	clear(d.Entries[len(rest):])
	p.data, d.packed, d.Entries = string(data), p, slices.Clip(slices.Clone(rest))
}

// Unpack makes all files of the directory d entries, and reports whether any was packed.
func (d *Entry) Unpack() bool {
	if d.packed == nil {
		return false
	}
	list := make([]*Entry, 0, len(d.Entries)+d.packed.n)
	for _, e := range d.Children() {
		e = e.kept()
		e.packedNow = false
		list = append(list, e)
	}
	d.Entries, d.packed = list, nil
	return true
}

// next decodes a file into e, and returns the rest.
func (p *packed) next(data string, e *Entry) string {
	number := func() (n uint64) {
		for shift := 0; ; shift += 7 {
			b := data[0]
			data = data[1:]
			n |= uint64(b&0x7f) << shift
			if b < 0x80 {
				return n
			}
		}
	}
	signed := func() int64 {
		u := number()
		return int64(u>>1) ^ -int64(u&1)
	}
	a := p.attrs[number()]
	e.Mode, e.UID, e.GID = a.mode, a.uid, a.gid
	e.Source = nil
	if a.sourced {
		e.Source = p.source
	}
	e.Size = signed()
	mtime := signed()
	e.Mtime, e.Atime = time.Unix(0, mtime), time.Unix(0, mtime+signed())
	n := int(data[0])
	e.Name = data[1 : 1+n]
	return data[1+n:]
}

// Children are the entries of the directory d: by name once Build has sorted them, or d was packed.
// One that is packed is overwritten by the next. The bool says whether the entry has an inode of
// its own, the next one of d, when the inodes have their numbers.
func (d *Entry) Children() iter.Seq2[bool, *Entry] {
	return func(yield func(own bool, e *Entry) bool) {
		list, p, ino := d.Entries, d.packed, d.firstChild
		if p == nil {
			p = &packed{}
		}
		scratch := Entry{parent: d, packedNow: true}
		data, left := p.data, p.n
		if left > 0 {
			data = p.next(data, &scratch)
		}
		for index := uint64(2); left > 0 || len(list) > 0; index++ {
			if left > 0 && (len(list) == 0 || scratch.Name < list[0].Name) {
				scratch.index, scratch.ino = index, ino
				ino++
				if !yield(true, &scratch) {
					return
				}
				if left--; left > 0 {
					data = p.next(data, &scratch)
				}
				continue
			}
			e := list[0]
			list = list[1:]
			own := e.ino == ino && !e.Subvol
			if !yield(own, e) {
				return
			}
			if e.ino == ino && !e.Subvol { // it may have got its number just now
				ino++
			}
		}
	}
}

// Each calls f, which may change them, for the entries of the directory d.
func (d *Entry) Each(f func(e *Entry)) {
	p := d.packed
	d.Unpack()
	for _, e := range d.Entries {
		f(e)
	}
	if p != nil {
		d.Pack(p.source)
	}
}

// Names is the number of entries of the directory d.
func (d *Entry) Names() int {
	if d.packed == nil {
		return len(d.Entries)
	}
	return len(d.Entries) + d.packed.n
}

// Child is the entry of the directory d that has the name; nil if there is none. d is unpacked.
func (d *Entry) Child(name string) *Entry {
	d.Unpack()
	i := slices.IndexFunc(d.Entries, func(c *Entry) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return d.Entries[i]
}

// kept is e, or a copy if it is one that the next packed entry overwrites.
func (e *Entry) kept() *Entry {
	if !e.packedNow {
		return e
	}
	c := *e
	return &c
}
