package transfer

import (
	"bufio"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"strconv"
	"strings"

	"btrlab/internal/format"
)

// Fakeroot is what fakeroot(1) says of files of the host: the save file of fakeroot -s. As under
// fakeroot -i, a file that it does not name belongs to 0:0 and has the mode that the host says.
type Fakeroot struct {
	inodes map[hostIno]fakeInode
	found  int
}

// fakeInode is what fakeroot says of an inode.
type fakeInode struct {
	mode, uid, gid uint32
	rdev           uint64 // as an inode item has it
}

// fakeFields are the fields of a line, with the bases of their numbers and their bits.
var fakeFields = []struct {
	name       string
	base, bits int
}{{"dev", 16, 64}, {"ino", 10, 64}, {"mode", 8, 32}, {"uid", 10, 32}, {"gid", 10, 32}, {"nlink", 10, 64}, {"rdev", 10, 64}}

// ReadFakeroot reads a save file. Errors name the line.
func ReadFakeroot(r io.Reader) (*Fakeroot, error) {
	f := &Fakeroot{inodes: map[hostIno]fakeInode{}}
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		if strings.TrimSpace(in.Text()) == "" {
			continue
		}
		id, i, ok := fakeLine(in.Text())
		if !ok {
			return nil, fmt.Errorf("line %d: want dev=HEX,ino=N,mode=OCTAL,uid=N,gid=N,nlink=N,rdev=N, as fakeroot -s writes it", n)
		}
		f.inodes[id] = i
	}
	return f, in.Err()
}

func fakeLine(line string) (id hostIno, i fakeInode, ok bool) {
	words := strings.Split(strings.TrimSpace(line), ",")
	if len(words) != len(fakeFields) {
		return id, i, false
	}
	var v [7]uint64
	for k, f := range fakeFields {
		text, named := strings.CutPrefix(words[k], f.name+"=")
		n, err := strconv.ParseUint(text, f.base, f.bits)
		if !named || err != nil {
			return id, i, false
		}
		v[k] = n
	}
	i = fakeInode{mode: uint32(v[2]), uid: uint32(v[3]), gid: uint32(v[4]), rdev: format.DecodeDev(v[6])}
	return hostIno{v[0], v[1]}, i, v[2] <= format.S_IFMT|0o7777
}

// Unused reports whether the save file names inodes, and none of what was copied: it is of another
// tree, or of this one before it was copied.
func (f *Fakeroot) Unused() bool { return f != nil && len(f.inodes) > 0 && f.found == 0 }

// of is st as fakeroot has it. What it says of a file of another type is of one that had the inode
// before, and leave is told.
func (f *Fakeroot) of(st iofs.FileInfo, leave func(err error)) iofs.FileInfo {
	if f == nil {
		return st
	}
	i := fakeInode{mode: imageMode(st.Mode())}
	if _, isDevice := deviceKinds[i.mode&format.S_IFMT]; isDevice {
		i.rdev = statAttrs(st).Rdev
	}
	if id, ok := hostID(st); ok {
		if said, ok := f.inodes[id]; ok {
			f.found++
			real, fake := i.mode&format.S_IFMT, said.mode&format.S_IFMT
			if _, isDevice := deviceKinds[fake]; fake == real || real == format.S_IFREG && isDevice {
				i = said
			} else {
				leave(fmt.Errorf("owner: fakeroot has inode %d with mode %o, the host with %o: the tree was changed later", id.ino, said.mode, i.mode))
			}
		}
	}
	return &faked{st, i}
}

// deviceKinds are the types of inodes that have a device number.
var deviceKinds = map[uint32]struct{}{format.S_IFCHR: {}, format.S_IFBLK: {}}

// faked is a file of the host as fakeroot has it.
type faked struct {
	iofs.FileInfo
	i fakeInode
}

// Mode is that of fakeroot.
func (f *faked) Mode() iofs.FileMode {
	m := hostMode(f.i.mode)
	for _, k := range kinds {
		if f.i.mode&format.S_IFMT == k.image {
			return m | k.host
		}
	}
	return m
}

// realInfo is st as the host has it.
func realInfo(st iofs.FileInfo) os.FileInfo {
	if f, ok := st.(*faked); ok {
		return f.FileInfo
	}
	return st
}
