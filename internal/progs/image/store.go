package image

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// Editor changes the trees of an image on its devices. A block that two trees reach changes in
// both.
//
// Each write keeps what was there before: Rollback takes back all changes since Keep.
type Editor struct {
	*Image
	Edits
	// Place finds a free place for a new block of a tree. Nil: there is none.
	Place func(tree uint64) (uint64, error)

	roots map[uint64]Root
	saved saved
}

// saved is what takes back the changes since the last Keep.
type saved struct {
	writes []written
	sb     format.Super
	roots  map[uint64]Root
}

// written is what a place held.
type written struct {
	at  Stripe
	old []byte
}

// NewEditor makes an editor of an image, whose root tree it reads.
func NewEditor(im *Image) (*Editor, error) {
	list, err := im.Roots()
	if err != nil {
		return nil, err
	}
	e := &Editor{Image: im, roots: map[uint64]Root{}}
	for _, r := range list {
		e.roots[r.Key.Objectid] = r
	}
	e.Edits = Edits{e}
	e.Keep()
	return e, nil
}

// RootOf is where a tree begins.
func (e *Editor) RootOf(tree uint64) (Ref, error) {
	switch tree {
	case format.ROOT_TREE_OBJECTID:
		return e.RootTree(), nil
	case format.CHUNK_TREE_OBJECTID:
		return e.ChunkTree(), nil
	}
	r, ok := e.roots[tree]
	if !ok {
		return Ref{}, fmt.Errorf("no tree %d", int64(tree))
	}
	return r.Ref(), nil
}

// SetRoot makes a block the root of a tree.
func (e *Editor) SetRoot(tree uint64, n format.Node) error {
	now := Ref{tree, n.Bytenr(), n.Generation(), n.Level()}
	if was, err := e.RootOf(tree); err != nil || was == now {
		return err
	}
	switch tree {
	case format.CHUNK_TREE_OBJECTID:
		return e.EditSupers(func(s *format.Super) {
			s.ChunkRoot, s.ChunkRootGeneration, s.ChunkRootLevel = now.Bytenr, now.Generation, uint8(now.Level)
		})
	case format.ROOT_TREE_OBJECTID:
		return e.EditSupers(func(s *format.Super) { s.Root, s.RootLevel = now.Bytenr, uint8(now.Level) })
	}
	root := e.roots[tree]
	err := e.Change(format.ROOT_TREE_OBJECTID, root.Key, func(b []byte) error {
		r := &root.Item
		r.Decode(b)
		r.Bytenr, r.Level, r.Generation, r.GenerationV2 = now.Bytenr, uint8(now.Level), now.Generation, now.Generation
		wide := make([]byte, format.RootItemSize) // one of the first version is shorter
		r.Encode(wide)
		copy(b, wide)
		return nil
	})
	e.roots[tree] = root
	return err
}

// NewNode is a new block of a tree, still empty.
func (e *Editor) NewNode(tree uint64, level int) (format.Node, error) {
	if e.Place == nil {
		return nil, errors.New("no place for a new block is known")
	}
	top, err := e.Node(e.RootTree())
	if err != nil {
		return nil, err
	}
	bytenr, err := e.Place(tree)
	if err != nil {
		return nil, err
	}
	n := make(format.Node, e.SB.NodeSize)
	n.InitHeader(e.SB.TreeFSID(), top.ChunkTreeUUID(), bytenr, e.SB.Generation, tree, level)
	return n, nil
}

// Own leaves the blocks as they are.
func (e *Editor) Own(uint64, []Step) error { return nil }

// WriteBlock writes a tree block to each of its copies, with its checksum.
func (e *Editor) WriteBlock(n format.Node) error {
	n.SetWritten(true)
	n.UpdateCsum(e.SB.CsumType)
	return e.Write(n.Bytenr(), n)
}

// Write writes p at a logical address, to every copy, with parity, in a way that Rollback takes
// back.
func (e *Editor) Write(logical uint64, p []byte) error {
	return e.Pieces(logical, p, func(c *Chunk, _ []Stripe, p []byte) error {
		err := c.Put(e.Task, logical, p, e.write)
		if err != nil {
			err = fmt.Errorf("logical %d: %w", logical, err)
		}
		logical += uint64(len(p))
		return err
	})
}

// write writes to a place of a device.
func (e *Editor) write(at Stripe, p []byte) error {
	if at.Dev == nil {
		return ErrMissing
	}
	old := make([]byte, len(p))
	if err := at.Read(e.Task, old); err != nil {
		clear(old) // a bad sector, of which nothing is to be won
	}
	e.saved.writes = append(e.saved.writes, written{at, old})
	return blockdev.Write(e.Task, at.Dev, p, int64(at.Off))
}

// EditSupers changes the superblock, in every whole copy of the last commit.
func (e *Editor) EditSupers(change func(s *format.Super)) error {
	for _, d := range e.Devs {
		for _, s := range Supers(e.Task, d.Device) {
			if s.Err != nil || s.Generation != e.SB.Generation {
				continue
			}
			change(&s.Super)
			s.Super.Encode(s.Raw)
			if err := e.write(Stripe{d, d.ID, s.Bytenr}, s.Raw); err != nil {
				return err
			}
		}
	}
	change(&e.SB)
	return nil
}

// Keep makes the changes so far stay.
func (e *Editor) Keep() {
	e.saved = saved{sb: e.SB, roots: maps.Clone(e.roots)}
}

// Rollback takes back the changes since Keep.
func (e *Editor) Rollback() error {
	var err error
	for _, w := range slices.Backward(e.saved.writes) {
		err = errors.Join(err, blockdev.Write(e.Task, w.at.Dev, w.old, int64(w.at.Off)))
	}
	e.SB, e.roots = e.saved.sb, e.saved.roots
	e.Keep()
	return err
}
