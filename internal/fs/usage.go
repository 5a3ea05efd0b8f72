package fs

import (
	"fmt"
	"strings"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Sharing is which data extents more than one inode refers to, in any subvolume or snapshot.
type Sharing struct {
	owners map[uint64]extentOwner
}

// extentOwner is the inode that refers to an extent; shared means that another one does as well.
type extentOwner struct {
	subvol uint64
	ino    format.Ino
	shared bool
}

// Sharing reads the file extents of all subvolumes. It holds about 48 bytes for each extent.
//
// Models btrfs_is_data_extent_shared() for every extent at once. Difference: the file extents are
// walked from the subvolumes instead of the back references from the extent.
//
// Preconditions: everything is committed, and nobody changes the file system.
func (f *FS) Sharing(t *sched.Task) (*Sharing, error) {
	s := &Sharing{map[uint64]extentOwner{}}
	err := f.fileExtents(t, func(id uint64, k format.Key, x format.FileExtentView) {
		at, mine := x.DiskBytenr(), extentOwner{subvol: id, ino: format.Ino(k.Objectid)}
		if o, ok := s.owners[at]; ok && (o.shared || o != mine) {
			mine.shared = true
		}
		s.owners[at] = mine
	})
	return s, err
}

// fileExtents calls fn for the file extents on disk of all subvolumes.
func (f *FS) fileExtents(t *sched.Task, fn func(id uint64, k format.Key, x format.FileExtentView)) error {
	list, err := f.Subvolumes(t)
	if err != nil {
		return err
	}
	ids := []uint64{format.FS_TREE_OBJECTID}
	for _, v := range list {
		if v.ID != format.FS_TREE_OBJECTID {
			ids = append(ids, v.ID)
		}
	}
	for _, id := range ids {
		v, err := f.subvol(t, id)
		if err != nil {
			return err
		}
		err = f.trans.Forest.Compare(t, nil, v.root, func(k format.Key, _, item []byte) error {
			if k.Type != format.EXTENT_DATA_KEY {
				return nil
			}
			x := format.FileExtentView(item)
			if x.Type() != format.FileExtentTypeInline && x.DiskBytenr() != 0 {
				fn(id, k, x)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Shared reports whether several inodes refer to the extent at bytenr.
func (s *Sharing) Shared(bytenr uint64) bool { return s.owners[bytenr].shared }

// Extents calls fn for each file extent of n on disk that has data, in the order of the file:
// holes, inline data and preallocated space are left out.
//
// Preconditions: as of Sharing.
func (n *Node) Extents(t *sched.Task, fn func(off uint64, x format.FileExtent)) error {
	for off := uint64(0); ; {
		start, x, ok, err := n.fs.store.LookupFileExtent(t, n.vol.root, n.ip.Ino, off)
		switch {
		case err != nil:
			return err
		case !ok && start+1 == 0:
			return nil
		case !ok:
			off = start
			continue
		case x.Type == format.FileExtentTypeInline:
			return nil
		case x.Type == format.FileExtentTypeReg && x.DiskBytenr != 0:
			fn(start, x)
		}
		if off = start + x.NumBytes; off <= start {
			return nil
		}
	}
}

// FileRef is a place in a file.
type FileRef struct {
	Subvol uint64
	Ino    format.Ino
	Off    uint64 // bytes
}

// Referrers lists the places in files whose data is at the logical address, in all subvolumes; with
// compressed data those of the whole extent's beginning that are visible. Models
// btrfs_ioctl_logical_to_ino(), as Sharing does.
//
// Preconditions: as of Sharing.
func (f *FS) Referrers(t *sched.Task, logical uint64) (list []FileRef, err error) {
	err = f.fileExtents(t, func(id uint64, k format.Key, x format.FileExtentView) {
		at := x.DiskBytenr()
		switch {
		case logical < at || logical >= at+x.DiskNumBytes():
		case x.Compression() != format.CompressNone:
			list = append(list, FileRef{id, format.Ino(k.Objectid), k.Offset})
		case logical >= at+x.Offset() && logical < at+x.Offset()+x.NumBytes():
			list = append(list, FileRef{id, format.Ino(k.Objectid), k.Offset + logical - at - x.Offset()})
		}
	})
	return list, err
}

// Paths lists the paths of an inode from the top-level subvolume. ENOENT when there is no such
// inode or subvolume.
func (f *FS) Paths(t *sched.Task, subvol uint64, ino format.Ino) ([]string, error) {
	v, err := f.subvol(t, subvol)
	if err != nil {
		return nil, err
	}
	top := ""
	if subvol != format.FS_TREE_OBJECTID {
		if top, err = f.subvolPath(t, subvol); err != nil {
			return nil, err
		}
	}
	top = "/" + strings.Trim(top, "/")
	if ino == format.FIRST_FREE_OBJECTID {
		return []string{top}, nil
	}
	names, err := f.store.Names(t, v.root, ino)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errno.ENOENT
	}
	var paths []string
	for _, n := range names {
		path, dir := n.Name, n.Dir
		for depth := 0; dir != format.FIRST_FREE_OBJECTID; depth++ {
			up, err := f.store.Names(t, v.root, dir)
			if err != nil {
				return nil, err
			}
			if len(up) == 0 || depth > maxDepth {
				return nil, fmt.Errorf("directory ino=%d has no path: %w", dir, errno.EUCLEAN)
			}
			path, dir = up[0].Name+"/"+path, up[0].Dir
		}
		paths = append(paths, strings.TrimSuffix(top, "/")+"/"+path)
	}
	return paths, nil
}

// maxDepth is more directories than a path has below one another in a sound file system that
// anybody uses: a cycle is damage.
const maxDepth = 1 << 16
