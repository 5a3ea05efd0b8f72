package fs

import (
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
	list, err := f.Subvolumes(t)
	if err != nil {
		return nil, err
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
			return nil, err
		}
		err = f.trans.Forest.Compare(t, nil, v.root, func(k format.Key, _, item []byte) error {
			if k.Type != format.EXTENT_DATA_KEY {
				return nil
			}
			x := format.FileExtentView(item)
			if x.Type() == format.FileExtentTypeInline || x.DiskBytenr() == 0 {
				return nil
			}
			at, mine := x.DiskBytenr(), extentOwner{subvol: id, ino: format.Ino(k.Objectid)}
			if o, ok := s.owners[at]; ok && (o.shared || o != mine) {
				mine.shared = true
			}
			s.owners[at] = mine
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Shared reports whether several inodes refer to the extent at bytenr.
func (s *Sharing) Shared(bytenr uint64) bool { return s.owners[bytenr].shared }

// Extents calls fn for each file extent of n on disk that has data, in the order of the file: holes,
// inline data and preallocated space are left out.
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
