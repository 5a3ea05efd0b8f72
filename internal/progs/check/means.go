package check

import (
	"fmt"

	"btrlab/internal/format"
)

// What a finding means to the user: the file that it is about, and the rule's sentence.

// explainMax bounds the findings whose files are looked up.
const explainMax = 1000

// explain gives the findings their meanings.
func (c *checker) explain() {
	p := &paths{c: c, known: map[[2]uint64]string{}}
	for i := range c.Findings {
		f := &c.Findings[i]
		f.Means = ruleMeans[f.Rule]
		subject := ""
		if i < explainMax {
			subject = p.subject(f.Place)
		}
		if f.Rule == "data.csum" || f.Rule == "data.read" {
			f.Means = c.ofData(f)
		}
		if subject != "" {
			f.Means = subject + ": " + f.Means
		}
	}
}

// ofData says what data that is bad on one copy means.
func (c *checker) ofData(f *Finding) string {
	what := fmt.Sprintf("%d bytes", f.Place.Num(AtLength))
	if off, ok := f.Place.Get(AtFileOffset); ok {
		what += fmt.Sprintf(" at %d", off)
	}
	if c.Spared[f.Place] {
		return what + " are bad on one copy; another is whole: scrub mends it"
	}
	return what + " cannot be read"
}

// paths looks paths up in the trees, for findings.
type paths struct {
	c     *checker
	known map[[2]uint64]string // of an inode of a tree
}

// subject is the file or directory that a place is about; "" if that is none, or unknown.
func (p *paths) subject(place Place) string {
	root, ok := place.Get(AtTree)
	if !ok || !format.IsFSTree(root) {
		return ""
	}
	if dir, ok := place.Get(AtDir); ok {
		return "entry " + join(p.of(root, dir), place.Name())
	}
	ino, ok := place.Get(AtIno)
	if !ok {
		return ""
	}
	kind := "file "
	p.c.Search(root, format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}, func(_ format.Key, b []byte) bool {
		if len(b) >= format.InodeItemSize {
			var i format.InodeItem
			if i.Decode(b); i.Mode&format.S_IFMT == format.S_IFDIR {
				kind = "directory "
			}
		}
		return false
	})
	return kind + p.of(root, ino)
}

func join(dir, name string) string {
	if dir == "/" {
		return dir + name
	}
	return dir + "/" + name
}

// of is the path of an inode, from the top of the file system; one that has no name is named by its
// number.
func (p *paths) of(root, ino uint64) string {
	id := [2]uint64{root, ino}
	if path, ok := p.known[id]; ok {
		return path
	}
	lost := fmt.Sprintf("<inode %d of subvolume %d>", ino, root)
	p.known[id] = lost // a directory below itself comes to it again
	dir, name := uint64(0), ""
	if ino == format.FIRST_FREE_OBJECTID {
		if root == format.FS_TREE_OBJECTID {
			p.known[id] = "/"
			return "/"
		}
		for _, r := range p.c.RootRefs {
			if r.Child == root {
				root, dir, name = r.Parent, r.Dirid, r.Name
				break
			}
		}
	} else {
		p.c.Search(root, format.Key{Objectid: ino, Type: format.INODE_REF_KEY}, func(k format.Key, b []byte) bool {
			switch k.Type {
			case format.INODE_REF_KEY:
				if refs, err := format.InodeRefs(b); err == nil && len(refs) > 0 {
					dir, name = k.Offset, refs[0].Name
				}
			case format.INODE_EXTREF_KEY:
				if refs, err := format.InodeExtrefs(b); err == nil && len(refs) > 0 {
					dir, name = refs[0].Parent, refs[0].Name
				}
			}
			return name == "" && k.Type <= format.INODE_EXTREF_KEY
		})
	}
	if name == "" {
		return lost
	}
	p.known[id] = join(p.of(root, dir), name)
	return p.known[id]
}
