package ctree

import (
	"bytes"

	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Compare calls f for each item that two trees do not have in common, in the order of the keys: old
// or item is nil where a tree lacks it. What they share as blocks is not read. a may be nil: an
// empty tree. The bytes are good during the call; an error of f ends the comparison.
//
// Models fs/btrfs/send.c:btrfs_compare_trees().
//
// Preconditions: nobody changes the trees, which are subvolumes that are read-only.
func (f *Forest) Compare(t *sched.Task, a, b *Root, fn func(key format.Key, old, item []byte) error) error {
	x, y := cursor{f: f, r: a}, cursor{f: f, r: b}
	defer x.close()
	defer y.close()
	x.begin()
	y.begin()
	for !x.end() || !y.end() {
		var order int
		switch {
		case x.end():
			order = 1
		case y.end():
			order = -1
		default:
			order = x.key().Compare(y.key())
		}
		// A pointer is followed when it comes first. Of two with one key the higher one is: then
		// both lead to blocks of one level, which are the same or not.
		switch at := [2]int{x.level(), y.level()}; {
		case order == 0 && at[0] == at[1] && at[0] > 0 && x.sameBlock(&y):
			x.next()
			y.next()
		case at[0] > 0 && (order < 0 || order == 0 && at[0] >= at[1]):
			if err := x.down(t); err != nil {
				return err
			}
		case at[1] > 0 && (order > 0 || order == 0):
			if err := y.down(t); err != nil {
				return err
			}
		case order < 0:
			if err := fn(x.key(), x.item(), nil); err != nil {
				return err
			}
			x.next()
		case order > 0:
			if err := fn(y.key(), nil, y.item()); err != nil {
				return err
			}
			y.next()
		default:
			if !bytes.Equal(x.item(), y.item()) {
				if err := fn(x.key(), x.item(), y.item()); err != nil {
					return err
				}
			}
			x.next()
			y.next()
		}
	}
	return nil
}

// cursor is a place in a tree that nobody changes: an item of a leaf, or a pointer of a node that
// has not been followed.
type cursor struct {
	f   *Forest
	r   *Root
	way []step // from the root down
}

// step is a slot of a block; the cursor has a reference to it.
type step struct {
	b    *Buffer
	slot int
}

// begin goes to the first slot of the root node.
func (c *cursor) begin() {
	if c.r == nil {
		return
	}
	b := c.r.node.Load()
	for !b.tryGet() {
		b = c.r.node.Load()
	}
	c.way = append(c.way, step{b: b})
	c.settle()
}

// settle goes up where a block has no more slots, to the next one there.
func (c *cursor) settle() {
	for len(c.way) > 0 {
		s := c.at()
		if s.slot < s.b.Node.Nritems() {
			return
		}
		s.b.Put()
		c.way = c.way[:len(c.way)-1]
		if len(c.way) > 0 {
			c.at().slot++
		}
	}
}

func (c *cursor) at() *step { return &c.way[len(c.way)-1] }

func (c *cursor) end() bool { return len(c.way) == 0 }

// level is that of the block; 0 at the end.
func (c *cursor) level() int {
	if c.end() {
		return 0
	}
	return c.at().b.level
}

func (c *cursor) key() format.Key { return c.at().b.Node.Key(c.at().slot) }
func (c *cursor) item() []byte    { return c.at().b.Node.Item(c.at().slot) }

// sameBlock reports whether two pointers lead to one block.
func (c *cursor) sameBlock(o *cursor) bool {
	s, p := c.at(), o.at()
	return s.b.Node.Blockptr(s.slot) == p.b.Node.Blockptr(p.slot) && s.b.Node.PtrGeneration(s.slot) == p.b.Node.PtrGeneration(p.slot)
}

// next goes past an item, or past a pointer with all below it.
func (c *cursor) next() {
	c.at().slot++
	c.settle()
}

// down follows a pointer.
func (c *cursor) down(t *sched.Task) error {
	s := c.at()
	b, err := c.f.neighbour(t, c.r, s.b, s.slot)
	if err != nil {
		return err
	}
	c.way = append(c.way, step{b: b})
	c.settle()
	return nil
}

func (c *cursor) close() {
	for _, s := range c.way {
		s.b.Put()
	}
	c.way = nil
}
