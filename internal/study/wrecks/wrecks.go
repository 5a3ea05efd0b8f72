// Package wrecks makes the images of lab 15: five small file systems, each with one item that is
// gone or wrong. A student's id says which files there are, which of them is hit and how, so that
// the answers of one student are not those of another. What a repair does is not worked out here:
// Repaired runs it on a copy and looks.
package wrecks

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/progs/repair"
	"btrlab/internal/sched"
)

// Class is a class of damage. Each student has one image of every class.
type Class struct {
	Name string // of the image and of its rows
	Asks string // what is hit, in words
	// Worse is the second damage, which Image.Worse has besides, in words.
	Worse string

	links int // names of the file that is hit
	// hit damages one item of the file, and worse does the rest.
	hit   func(v *victim) (tree uint64, k format.Key, err error)
	worse func(v *victim) error
}

// Image is a damaged image.
type Image struct {
	Class *Class
	// Tree and Key are the item that is gone or wrong.
	Tree uint64
	Key  format.Key
	// Names are the paths of the file that is hit, as they were.
	Names []string
	// Dev is what the student has; Worse has the second damage as well.
	Dev, Worse *blockdev.Memory

	sound *blockdev.Memory // before the damage
	ino   uint64
	data  []byte // of the file, as it was
}

// Fate is what a repair leaves of a file.
type Fate struct {
	Mode  uint32 // permissions
	Links uint32
	Bytes uint64 // that can be read, and are those of before the damage
	Paths []string
	// Findings are those of a check after the repair.
	Findings int
}

// imageBytes is the size of an image. Most of it is a hole.
const imageBytes = 128 << 20

// Make makes the image of a class for a student. The same id gives the same bytes on every machine.
func Make(student string, c *Class) (*Image, error) {
	d := &dice{seed: fmt.Sprintf("btrlab lab 15\n%s\n%s\n", strings.ToLower(strings.TrimSpace(student)), c.Name)}
	t := sched.NewTask("images")
	im := &Image{Class: c, sound: blockdev.NewMemory(imageBytes)}
	root := d.tree()
	id := func(what string) (u format.UUID) {
		h := sha256.Sum256([]byte(d.seed + what))
		copy(u[:], h[:])
		return u
	}
	if _, err := mkfs.Build(t, im.sound, mkfs.Options{
		Label: c.Name, NodeSize: 4096, MetadataProfile: "single", DataProfile: "single",
		FSID: id("fsid"), DevUUID: id("device"), ChunkTreeUUID: id("chunks"), SubvolUUID: id("subvolume"),
		Now: began, Open: func() mkfs.Opener { return opener{} },
	}, root); err != nil {
		return nil, err
	}
	e, err := openTrees(t, im.sound)
	if err != nil {
		return nil, err
	}
	if err := e.splitSums(func() bool { return d.under(2) == 0 }); err != nil {
		return nil, err
	}
	if err := im.choose(d, e); err != nil {
		return nil, err
	}
	im.Dev = im.sound.Snapshot()
	v := &victim{d: d, ino: im.ino}
	if v.editor, err = openTrees(t, im.Dev); err != nil {
		return nil, err
	}
	if im.Tree, im.Key, err = c.hit(v); err != nil {
		return nil, err
	}
	im.Worse = im.Dev.Snapshot()
	if v.editor, err = openTrees(t, im.Worse); err != nil {
		return nil, err
	}
	return im, c.worse(v)
}

// choose takes the file that is hit: a regular one with so many names and data outside the inode.
func (im *Image) choose(d *dice, e *editor) error {
	files, err := e.files()
	if err != nil {
		return err
	}
	var of []uint64
	for ino, f := range files {
		if f.mode&format.S_IFMT == format.S_IFREG && len(f.names) == im.Class.links && f.size > blockBytes {
			of = append(of, ino)
		}
	}
	if len(of) == 0 {
		return errors.New("no file to hit")
	}
	slices.Sort(of)
	im.ino = of[d.under(len(of))]
	im.Names = files[im.ino].names
	im.data, err = e.read(im.ino)
	return err
}

// Repaired is what check --repair leaves of the file on Dev, which stays as it is.
func (im *Image) Repaired() (*Fate, error) { return im.repaired(im.Dev) }

// RepairedWorse is the same of Worse.
func (im *Image) RepairedWorse() (*Fate, error) { return im.repaired(im.Worse) }

func (im *Image) repaired(dev *blockdev.Memory) (*Fate, error) {
	t := sched.NewTask("repair")
	dev = dev.Snapshot()
	r, err := repair.Propose(t, dev, check.Options{})
	if err != nil {
		return nil, err
	}
	if r.Better() {
		if err := r.Commit(t, func(int, int64, []byte) error { return nil }, func() error { return nil }); err != nil {
			return nil, err
		}
	}
	after, err := check.Check(t, dev, check.Options{})
	if err != nil {
		return nil, err
	}
	e, err := openTrees(t, dev)
	if err != nil {
		return nil, err
	}
	files, err := e.files()
	if err != nil {
		return nil, err
	}
	file, ok := files[im.ino]
	if !ok {
		return nil, fmt.Errorf("inode %d is gone", im.ino)
	}
	f := &Fate{Mode: file.mode &^ format.S_IFMT, Links: file.nlink, Paths: file.names, Findings: len(after.Findings)}
	f.Bytes, err = e.same(im.ino, im.data)
	return f, err
}

// Was reports whether the image had the item before the damage.
func (im *Image) Was(tree uint64, is func(k format.Key) bool) (bool, error) {
	e, err := openTrees(sched.NewTask("images"), im.sound)
	if err != nil {
		return false, err
	}
	found := false
	err = e.All(tree, func(k format.Key, _ []byte) { found = found || is(k) })
	return found, err
}

// dice are numbers that a seed gives, the same on every machine.
type dice struct {
	seed string
	n    int
}

// under is a number from 0 to n-1.
func (d *dice) under(n int) int {
	d.n++
	h := sha256.Sum256(fmt.Appendf(nil, "%s%d\n", d.seed, d.n))
	return int(binary.BigEndian.Uint64(h[:]) >> 1 % uint64(n))
}

// began is when all files of the images were made.
var began = time.Unix(1_750_000_000, 0)
