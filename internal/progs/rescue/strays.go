package rescue

import (
	"fmt"
	gopath "path"
	"strings"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// strays copies what no directory leads to: the items of its directory are lost. An inode has its
// names in itself as well, so most find their way back; the rest goes to lost+found.
func (s *subvol) strays() error {
	if s.tr.whole() {
		return nil // then there are none, or the file system had them before
	}
	last := uint64(0)
	return s.tr.each(format.Key{Objectid: format.FIRST_FREE_OBJECTID}, func(k format.Key, _ []byte, l *leaf) error {
		ino := k.Objectid
		if ino > format.LAST_FREE_OBJECTID {
			return errEnd
		}
		switch k.Type {
		case format.INODE_ITEM_KEY, format.EXTENT_DATA_KEY:
		default:
			return nil
		}
		if ino == last || s.seen[ino/64]&(1<<(ino%64)) != 0 {
			return nil
		}
		last = ino
		return s.stray(ino, l)
	})
}

// stray copies one of them.
func (s *subvol) stray(ino uint64, l *leaf) error {
	item, _, ok := s.inode(ino)
	if ok && item.Nlink == 0 {
		return nil // deleted while a task had it open
	}
	ft := uint8(format.FtRegFile)
	if ok {
		ft = format.FtOf(item.Mode)
	}
	path, parent := s.pathOf(ino, 0)
	// An older leaf may have what has been deleted since. It must not take a living file's place.
	if parent != 0 && (s.taken(parent, gopath.Base(path), ino) || l.older && s.intact(parent)) {
		path, parent = s.lostPath(ino, gopath.Base(path)), 0
	}
	if !s.o.wants(path, ft == format.FtDir) {
		return nil
	}
	if err := s.above(gopath.Dir(path)); err != nil {
		return err
	}
	s.report(Partial, path, "no directory has its name any more")
	var err error
	if ft == format.FtDir {
		err = s.dir(ino, path, ft)
	} else {
		err = s.file(ino, path, ft)
	}
	if err != nil || parent == 0 {
		return err
	}
	// The directory has changed once more.
	if d, _, ok := s.inode(parent); ok {
		dir := gopath.Dir(path)
		if dir == "." {
			dir = ""
		}
		return s.refusedDir(dir, s.sink.Leave(s.object(parent, dir, &d, true, format.FtDir)))
	}
	return nil
}

// lostPath is the place of an inode in lost+found.
func (s *subvol) lostPath(ino uint64, name string) string {
	if name != "" {
		name = "-" + name
	}
	return gopath.Join(lostFound, fmt.Sprintf("%d-%d%s", s.id, ino, name))
}

// above makes the directories of a path, as far as they are missing.
func (s *subvol) above(path string) error {
	for i, r := range path + "/" {
		if r == '/' && i > 0 && path != "." {
			if err := s.sink.Enter(&Object{Path: path[:i], Attrs: image.Attrs{Mode: format.S_IFDIR | 0o700}}); err != nil {
				return s.refused(path[:i], err)
			}
		}
	}
	return nil
}

// depthMax bounds the way up: an older leaf may name a directory that was moved below itself.
const depthMax = 256

// pathOf is the path of an inode by the names in the inodes above it, and its directory; one in
// lost+found and 0, if it has no name.
func (s *subvol) pathOf(ino uint64, depth int) (path string, parent uint64) {
	if ino == format.FIRST_FREE_OBJECTID {
		return s.path, 0
	}
	name := ""
	_ = s.tr.each(format.Key{Objectid: ino, Type: format.INODE_REF_KEY}, func(k format.Key, b []byte, _ *leaf) error {
		switch {
		case k.Objectid != ino || k.Type > format.INODE_EXTREF_KEY:
			return errEnd
		case k.Type == format.INODE_REF_KEY:
			if refs, err := format.InodeRefs(b); err == nil && len(refs) > 0 {
				name, parent = refs[0].Name, k.Offset
			}
		case k.Type == format.INODE_EXTREF_KEY:
			if refs, err := format.InodeExtrefs(b); err == nil && len(refs) > 0 {
				name, parent = refs[0].Name, refs[0].Parent
			}
		}
		if name != "" {
			return errEnd
		}
		return nil
	})
	if bad(name) || depth == depthMax {
		return s.lostPath(ino, ""), 0
	}
	up, _ := s.pathOf(parent, depth+1)
	if _, _, ok := s.inode(parent); !ok && parent != format.FIRST_FREE_OBJECTID && !strings.HasPrefix(up, lostFound) {
		up = s.lostPath(parent, "")
	}
	return gopath.Join(up, name), parent
}

// taken reports whether the directory has the name for another inode.
func (s *subvol) taken(dir uint64, name string, ino uint64) (taken bool) {
	k := format.Key{Objectid: dir, Type: format.DIR_ITEM_KEY, Offset: format.NameHash(name)}
	_ = s.tr.each(k, func(at format.Key, b []byte, _ *leaf) error {
		if at != k {
			return errEnd
		}
		if list, err := format.DirItems(b); err == nil {
			for _, d := range list {
				taken = taken || d.Name == name && d.Location.Objectid != ino
			}
		}
		return errEnd
	})
	return taken
}

// intact reports whether all entries of a directory are from its last state.
func (s *subvol) intact(dir uint64) bool {
	lo, hi := format.Key{Objectid: dir}, format.Key{Objectid: dir, Type: format.DIR_INDEX_KEY, Offset: ^uint64(0)}
	if s.tr.misses(lo, hi) {
		return false
	}
	for _, l := range s.tr.leaves {
		if !hi.Less(l.lo) && !l.hi.Less(lo) && l.older {
			return false
		}
	}
	return true
}
