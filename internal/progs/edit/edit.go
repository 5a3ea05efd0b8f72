// Package edit changes single fields and items of an image by their names, whatever comes of it: to
// make the damage that a check, a repair or a reader is to be tried on, and to put a value right
// that somebody knows better. Nothing but the change itself is looked after: no reference, no
// count, no free space.
//
// Open covers the devices in memory; Super, Block, Set, Insert and Delete change the covers and
// note what was there; Commit writes them, after an undo.
//
// Invariant: nothing is written to a device before Commit.
//
// Model: btrfs-progs btrfs-corrupt-block, and debugfs set_inode_field of e2fsprogs. Differences:
// fields have the names that a dump prints, and checksums are made right unless Options say
// otherwise.
package edit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/progs/dump"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// Csum is what becomes of the checksum of what is changed.
type Csum uint8

// The kinds.
const (
	RightCsum Csum = iota
	KeepCsum       // the old one stays
	BadCsum        // a wrong one
)

// Options of an edit.
type Options struct {
	Csum Csum
	// Copy, if not negative, is the only copy that is changed, of a block or of a superblock.
	Copy int
	// Raw deletes the header of an item and moves nothing, so that the leaf is not valid.
	Raw bool
}

// Edit is an image under change. Changes says in one line each what was changed, as
// "what field: old -> new".
type Edit struct {
	Changes []string

	t      *sched.Task
	o      Options
	devs   []blockdev.Device
	covers []*dm.Overlay
	im     *image.Image // nil until it is needed
}

// Open covers the devices of an image.
func Open(t *sched.Task, devs []blockdev.Device, o Options) *Edit {
	e := &Edit{t: t, o: o, devs: devs}
	for _, d := range devs {
		e.covers = append(e.covers, dm.NewOverlay(d, nil))
	}
	return e
}

func (e *Edit) open() error {
	if e.im != nil {
		return nil
	}
	more := []blockdev.Device{}
	for _, c := range e.covers[1:] {
		more = append(more, c)
	}
	var err error
	e.im, err = image.Open(e.t, e.covers[0], more...)
	return err
}

// Set is one change: a field and its value as text. The field @OFFSET is bytes in hexadecimal.
type Set struct{ Field, Value string }

// ParseSet reads FIELD=VALUE.
func ParseSet(word string) (s Set, err error) {
	var ok bool
	if s.Field, s.Value, ok = strings.Cut(word, "="); !ok || s.Field == "" {
		return s, fmt.Errorf("%q, want FIELD=VALUE", word)
	}
	return s, nil
}

// apply changes fields in the bytes of what, and notes each change once.
func (e *Edit) apply(what string, fields []dump.Field, b []byte, sets []Set) error {
	for _, s := range sets {
		if off, ok := strings.CutPrefix(s.Field, "@"); ok {
			old, err := dump.SetBytes(b, off, s.Value)
			if err != nil {
				return err
			}
			e.note("%s @%s: %x -> %s", what, off, old, s.Value)
			continue
		}
		f, err := fieldOf(what, fields, s.Field)
		if err != nil {
			return err
		}
		old, _ := f.Get(b)
		if err := f.Set(b, s.Value); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		now, _ := f.Get(b)
		e.note("%s %s: %s -> %s", what, f.Name, old, now)
	}
	return nil
}

func (e *Edit) note(text string, args ...any) {
	if line := fmt.Sprintf(text, args...); !slices.Contains(e.Changes, line) { // of another copy
		e.Changes = append(e.Changes, line)
	}
}

func fieldOf(what string, fields []dump.Field, name string) (dump.Field, error) {
	var names []string
	for _, f := range fields {
		if f.Name == name || f.Shown == name && name != "-" && name != "" {
			return f, nil
		}
		names = append(names, f.Name)
	}
	if len(names) == 0 {
		return dump.Field{}, fmt.Errorf("%s has no field %q, and none that has a name: want @OFFSET=BYTES", what, name)
	}
	return dump.Field{}, fmt.Errorf("%s has no field %q, want @OFFSET=BYTES or one of: %s", what, name, strings.Join(names, ", "))
}

// Super changes fields of superblocks: of every copy on every device, unless Options.Copy names
// one. A copy that cannot be read is left.
func (e *Edit) Super(sets []Set) error {
	found := false
	for i, c := range e.covers {
		for _, s := range image.Supers(e.t, c) {
			if s.Raw == nil || e.o.Copy >= 0 && s.Copy != e.o.Copy {
				continue
			}
			found = true
			csum := format.DecodeSuper(s.Raw).CsumType
			if err := e.apply("super", dump.SuperFields(), s.Raw, sets); err != nil {
				return err
			}
			if now := format.DecodeSuper(s.Raw).CsumType; now.Known() {
				csum = now
			}
			e.sum(s.Raw, csum)
			if err := blockdev.Write(e.t, e.covers[i], s.Raw, int64(s.Bytenr)); err != nil {
				return err
			}
		}
	}
	if !found {
		return errors.New("no such superblock can be read")
	}
	return nil
}

// sum treats the checksum that a block or a superblock begins with as Options.Csum says.
func (e *Edit) sum(b []byte, csum format.CsumType) {
	if e.o.Csum == KeepCsum || !csum.Known() {
		return
	}
	sum := csum.Sum(b[format.CsumField:])
	copy(b, sum[:])
	if e.o.Csum == BadCsum {
		b[0] ^= 0xff
	}
}

// Block changes fields of the tree block at a logical address, whatever is in it.
func (e *Edit) Block(bytenr uint64, sets []Set) error {
	if err := e.open(); err != nil {
		return err
	}
	n, err := e.read(bytenr)
	if err != nil {
		return err
	}
	if err := e.apply(fmt.Sprintf("block %d", bytenr), dump.BlockFields(n), n, sets); err != nil {
		return err
	}
	return e.write(bytenr, n)
}

// read reads the copy of a block that is to be changed, or the first that the device reads.
func (e *Edit) read(bytenr uint64) (format.Node, error) {
	n := make(format.Node, e.im.SB.NodeSize)
	return n, e.im.Pieces(bytenr, n, func(_ *image.Chunk, places []image.Stripe, p []byte) error {
		if e.o.Copy >= len(places) {
			return fmt.Errorf("block %d has %d copies, want one of them from 0 on", bytenr, len(places))
		}
		if e.o.Copy >= 0 {
			places = places[e.o.Copy:][:1]
		}
		err := image.ErrMissing
		for _, at := range places {
			if err = at.Read(e.t, p); err == nil {
				return nil
			}
		}
		return fmt.Errorf("block %d: %w", bytenr, err)
	})
}

// write writes a block to its copies, or to the one of Options.
func (e *Edit) write(bytenr uint64, n format.Node) error {
	e.sum(n, e.im.SB.CsumType)
	return e.im.Pieces(bytenr, n, func(c *image.Chunk, places []image.Stripe, p []byte) error {
		if e.o.Copy >= len(places) {
			return fmt.Errorf("block %d has %d copies, want one of them from 0 on", bytenr, len(places))
		}
		for i, at := range places {
			if e.o.Copy >= 0 && i != e.o.Copy {
				continue
			}
			if at.Dev == nil {
				return image.ErrMissing
			}
			if err := blockdev.Write(e.t, at.Dev, p, int64(at.Off)); err != nil {
				return err
			}
		}
		return nil
	})
}

// store is the trees of the image: blocks are written with the checksum that Options say.
type store struct {
	*image.Editor
	e *Edit
}

func (s store) WriteBlock(n format.Node) error { return s.e.write(n.Bytenr(), n) }

func (e *Edit) trees() (image.Edits, error) {
	if err := e.open(); err != nil {
		return image.Edits{}, err
	}
	ed, err := image.NewEditor(e.im)
	return image.Edits{Store: store{ed, e}}, err
}

func itemName(tree uint64, key format.Key) string {
	return fmt.Sprintf("tree %d %s", int64(tree), dump.Key(key))
}

// item finds an item in its leaf, which it must be in.
func (e *Edit) item(tree uint64, key format.Key) (ed image.Edits, leaf image.Step, err error) {
	if ed, err = e.trees(); err != nil {
		return ed, leaf, err
	}
	path, found, err := ed.Path(tree, key)
	if err == nil && !found {
		err = fmt.Errorf("%s is not there", itemName(tree, key))
	}
	if err != nil {
		return ed, leaf, err
	}
	return ed, path[len(path)-1], nil
}

// Set changes fields of an item, which keeps its size. The field key is its key. Snapshots that
// share its leaf have the change, too.
func (e *Edit) Set(tree uint64, key format.Key, sets []Set) error {
	ed, leaf, err := e.item(tree, key)
	if err != nil {
		return err
	}
	for _, s := range sets {
		if s.Field != "key" {
			err = e.setItem(tree, key, leaf.N.Item(leaf.Slot), s)
		} else if k, kerr := dump.ParseKey(s.Value); kerr != nil {
			err = fmt.Errorf("key=%s, %w", s.Value, kerr)
		} else {
			leaf.N.SetKey(leaf.Slot, k)
			e.note("%s key: %s -> %s", itemName(tree, key), dump.Key(key), dump.Key(k))
		}
		if err != nil {
			return err
		}
	}
	return ed.WriteBlock(leaf.N)
}

func (e *Edit) setItem(tree uint64, key format.Key, b []byte, s Set) error {
	l, _ := dump.LayoutOf(key.Type, b)
	return e.apply(itemName(tree, key), l.Fields, b, []Set{s})
}

// Insert adds an item of the bytes data, or if that is nil of the size of its type and zeros, and
// sets its fields. A name in them makes it longer.
func (e *Edit) Insert(tree uint64, key format.Key, data []byte, sets []Set) error {
	l, known := dump.LayoutOf(key.Type, nil)
	if data == nil {
		if !known {
			return fmt.Errorf("%s: the size of such an item is not known, want its bytes", itemName(tree, key))
		}
		data = make([]byte, l.Size)
		for i, s := range sets {
			if f, err := fieldOf("", l.Fields, s.Field); err == nil && f.Kind == dump.Text {
				data = f.SetText(data, s.Value)
				sets = slices.Delete(slices.Clone(sets), i, i+1)
				break
			}
		}
	}
	e.note("%s: inserted, %d bytes", itemName(tree, key), len(data))
	for _, s := range sets {
		if err := e.setItem(tree, key, data, s); err != nil {
			return err
		}
	}
	ed, err := e.trees()
	if err != nil {
		return err
	}
	return ed.Insert(tree, key, data)
}

// Delete takes an item out of its leaf, which stays valid, or with Options.Raw does not.
func (e *Edit) Delete(tree uint64, key format.Key) error {
	ed, leaf, err := e.item(tree, key)
	if err != nil {
		return err
	}
	e.note("%s: deleted, it had %d bytes: %x", itemName(tree, key), leaf.N.ItemSize(leaf.Slot), leaf.N.Item(leaf.Slot))
	if !e.o.Raw {
		return ed.Delete(tree, key)
	}
	nr := leaf.N.Nritems()
	head := leaf.N[format.HeaderSize:][:nr*format.ItemHeaderSize]
	copy(head[leaf.Slot*format.ItemHeaderSize:], head[(leaf.Slot+1)*format.ItemHeaderSize:])
	leaf.N.SetNritems(nr - 1)
	return ed.WriteBlock(leaf.N)
}

// Line is a field and its value.
type Line struct{ Name, Value string }

func lines(fields []dump.Field, b []byte) (l []Line) {
	for _, f := range fields {
		if v, ok := f.Get(b); ok {
			l = append(l, Line{f.Name, v})
		}
	}
	return l
}

// ShowSuper lists the fields of a superblock of the first device.
func (e *Edit) ShowSuper() ([]Line, error) {
	s := image.ReadSuper(e.t, e.covers[0], max(e.o.Copy, 0))
	if s.Raw == nil {
		return nil, s.Unread()
	}
	return lines(dump.SuperFields(), s.Raw), nil
}

// ShowBlock lists those of a block.
func (e *Edit) ShowBlock(bytenr uint64) ([]Line, error) {
	if err := e.open(); err != nil {
		return nil, err
	}
	n, err := e.read(bytenr)
	if err != nil {
		return nil, err
	}
	return lines(dump.BlockFields(n), n), nil
}

// ShowItem lists those of an item.
func (e *Edit) ShowItem(tree uint64, key format.Key) ([]Line, error) {
	ed, err := e.trees()
	if err != nil {
		return nil, err
	}
	path, found, err := ed.Path(tree, key)
	if err == nil && !found {
		err = fmt.Errorf("%s is not there", itemName(tree, key))
	}
	if err != nil {
		return nil, err
	}
	leaf := path[len(path)-1]
	b := leaf.N.Item(leaf.Slot)
	l, _ := dump.LayoutOf(key.Type, b)
	return append(lines(l.Fields, b), Line{"bytes", fmt.Sprintf("%x", b)}), nil
}

// Commit writes the changes. Undo is called before with what the devices have now, and must keep
// that durably before it returns from done.
func (e *Edit) Commit(undo func(dev int, off int64, old []byte) error, done func() error) error {
	const block = 4096
	from := make([]blockdev.Device, len(e.covers))
	var list []blockdev.Range
	for i, c := range e.covers {
		from[i] = c
		for _, off := range c.Written(e.t) {
			list = append(list, blockdev.Range{Dev: i, Off: off, Len: int(min(block, c.Size()-off))})
		}
	}
	return blockdev.Replace(e.t, from, e.devs, [][]blockdev.Range{list}, undo, done)
}
