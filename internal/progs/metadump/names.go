package metadump

import (
	"hash/crc32"
	"math/rand/v2"

	"btrlab/internal/format"
)

// Names says what becomes of the names of files and of the values of attributes.
type Names uint8

// The ways.
const (
	// KeepNames leaves them.
	KeepNames Names = iota
	// RandomNames gives a name random letters. Items keep their keys, which are hashes of the old
	// names, so a check of the restored image complains of them.
	RandomNames
	// CollidingNames gives a name random letters of the same hash. A name of four bytes or less
	// stays: no other one of its length has its hash, which is in the key, so it can be made of
	// that anyway. Btrfs-image gives it random letters, and Linux then refuses the leaf.
	CollidingNames
)

// namer gives names other ones of the same length, the same to each that is the same. Names of
// subvolumes are among them, which btrfs-image -s leaves: the directory item and the reference of a
// subvolume agree here.
type namer struct {
	ways    Names
	rand    *rand.Rand
	to      map[string]string
	used    map[string]bool
	crc     *crc32.Table
	back    [256]byte // by the upper byte of a word of crc, its place
	kept    int       // short names that stay
	unalike int       // longer ones for which none of the same hash was found
}

func newNamer(ways Names, seed [32]byte) *namer {
	if ways == KeepNames {
		return nil
	}
	n := &namer{ways: ways, rand: rand.New(rand.NewChaCha8(seed)), to: map[string]string{}, used: map[string]bool{}, crc: crc32.MakeTable(crc32.Castagnoli)}
	for i, w := range n.crc {
		n.back[w>>24] = byte(i)
	}
	return n
}

// item changes the names in an item of a leaf. One that is cut short loses the rest.
//
// Models sanitize_name() of btrfs-progs' image/sanitize.c.
func (n *namer) item(typ uint8, b []byte) {
	switch typ {
	case format.XATTR_ITEM_KEY:
		entries(b, format.DirItemSize, func(b []byte) int { return format.DirItemView(b).Size() }, func(b []byte) { clear(format.DirItemView(b).Data()) })
	case format.DIR_ITEM_KEY, format.DIR_INDEX_KEY:
		entries(b, format.DirItemSize, func(b []byte) int { return format.DirItemView(b).Size() }, func(b []byte) { n.rename(format.DirItemView(b).Name()) })
	case format.INODE_REF_KEY:
		entries(b, format.InodeRefSize, func(b []byte) int { return format.InodeRefView(b).Size() }, func(b []byte) { n.rename(format.InodeRefView(b).Name()) })
	case format.INODE_EXTREF_KEY:
		entries(b, format.InodeExtrefSize, func(b []byte) int { return format.InodeExtrefView(b).Size() }, func(b []byte) { n.rename(format.InodeExtrefView(b).Name()) })
	case format.ROOT_REF_KEY, format.ROOT_BACKREF_KEY:
		entries(b, format.RootRefSize, func(b []byte) int { return format.RootRefSize + format.RootRefView(b).NameLen() }, func(b []byte) { n.rename(format.RootRefView(b).Name()) })
	}
}

// entries calls f with the entries of an item, each of a head and as many bytes as size says.
func entries(b []byte, head int, size func(b []byte) int, f func(b []byte)) {
	for len(b) > 0 {
		if len(b) < head || size(b) > len(b) {
			clear(b)
			return
		}
		f(b)
		b = b[size(b):]
	}
}

// rename changes a name. Those that every file system has stay: the one of the top of a subvolume
// and "default", which leads to the subvolume that is mounted.
func (n *namer) rename(name []byte) {
	old := string(name)
	if old == ".." || old == "default" || old == "" {
		return
	}
	to, ok := n.to[old]
	if !ok {
		to = n.other(old)
		n.to[old], n.used[to] = to, true
	}
	copy(name, to)
}

// tries bounds the search for a name that is free, and that has the hash.
const tries = 1 << 16

// other is a new name for old.
func (n *namer) other(old string) string {
	b := make([]byte, len(old))
	if n.ways == CollidingNames && len(old) <= 4 {
		n.kept++
		return old
	}
	if n.ways == CollidingNames {
		for try := range tries {
			if n.collide(b, old, try) && string(b) != old && !n.used[string(b)] {
				return string(b)
			}
		}
		n.unalike++
	}
	for range tries {
		if n.letters(b); !n.used[string(b)] {
			break
		}
	}
	return string(b)
}

// letters fills b with letters and digits.
func (n *namer) letters(b []byte) {
	const set = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for i := range b {
		b[i] = set[n.rand.IntN(len(set))]
	}
}

// collide fills b, of the length of old, with random letters and four bytes that give it the hash
// of old. It reports whether b is a name: of letters that can be printed, or after half of the
// tries of any bytes but NUL and the slash, since a name of five bytes has few others of its hash.
func (n *namer) collide(b []byte, old string, try int) bool {
	head, tail := b[:len(b)-4], b[len(b)-4:]
	n.letters(head)
	w := uint32(format.NameHash(old))
	for range tail {
		i := n.back[w>>24]
		w = (w^n.crc[i])<<8 | uint32(i)
	}
	le.PutUint32(tail, w^uint32(format.NameHash(string(head))))
	for _, c := range tail {
		if c == 0 || c == '/' || try < tries/2 && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}
