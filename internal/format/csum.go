package format

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/crypto/blake2b"
)

// CsumType is the algorithm of a file system's checksums: those of superblocks, tree blocks and
// data. The zero value is crc32c. Names and references are hashed with crc32c in every file system.
type CsumType uint16

// Checksum types, as the superblock numbers them.
const (
	CsumCRC32C CsumType = iota
	CsumXXHash64
	CsumSHA256
	CsumBLAKE2b
)

// CsumField is the room for a checksum at the start of a superblock or tree block. What the type
// does not fill is zero.
const CsumField = 32

var csumTypes = [...]struct {
	name string
	size int
}{{"crc32c", CsumSize}, {"xxhash64", 8}, {"sha256", 32}, {"blake2b", 32}}

// Known reports whether this package can compute checksums of the type.
func (c CsumType) Known() bool { return int(c) < len(csumTypes) }

// CsumTypes are the names of the types.
func CsumTypes() (names []string) {
	for _, t := range csumTypes {
		names = append(names, t.name)
	}
	return names
}

// ParseCsumType is the type with a name that mkfs.btrfs --csum takes.
func ParseCsumType(name string) (CsumType, error) {
	switch name {
	case "xxhash":
		name = "xxhash64"
	case "blake2":
		name = "blake2b"
	}
	for i, t := range csumTypes {
		if t.name == name {
			return CsumType(i), nil
		}
	}
	return 0, fmt.Errorf("checksum type %q, want one of: %s", name, strings.Join(CsumTypes(), ", "))
}

// String is a name that mkfs.btrfs --csum takes.
func (c CsumType) String() string {
	if !c.Known() {
		return fmt.Sprintf("unknown (%d)", uint16(c))
	}
	return csumTypes[c].name
}

// Size is the size of a checksum in bytes; 0 if the type is unknown.
func (c CsumType) Size() int {
	if !c.Known() {
		return 0
	}
	return csumTypes[c].size
}

// Sum is the checksum of p: the first Size bytes; the others are zero. It does not allocate.
//
// Models fs/btrfs/disk-io.c:btrfs_csum_data() of 6.x. blake2b is blake2b-256 without a key.
func (c CsumType) Sum(p []byte) (sum [CsumField]byte) {
	switch c {
	case CsumCRC32C:
		le.PutUint32(sum[:], CRC32C(p))
	case CsumXXHash64:
		le.PutUint64(sum[:], xxhash.Sum64(p))
	case CsumSHA256:
		return sha256.Sum256(p)
	case CsumBLAKE2b:
		return blake2b.Sum256(p)
	}
	return sum
}

// Append appends the checksum of p to sums: Size bytes.
func (c CsumType) Append(sums, p []byte) []byte {
	if c == CsumCRC32C {
		return le.AppendUint32(sums, CRC32C(p))
	}
	sum := c.Sum(p)
	return append(sums, sum[:c.Size()]...)
}

// AppendSectors appends the checksum of each sector of p, whole sectors.
func (c CsumType) AppendSectors(sums, p []byte) []byte {
	for ; len(p) > 0; p = p[SectorSize:] {
		sums = c.Append(sums, p[:SectorSize])
	}
	return sums
}

// Match reports whether the first Size bytes of sum are the checksum of p.
func (c CsumType) Match(sum, p []byte) bool {
	if c == CsumCRC32C {
		return le.Uint32(sum) == CRC32C(p)
	}
	want := c.Sum(p)
	n := c.Size()
	return n > 0 && bytes.Equal(sum[:n], want[:n])
}

// Text is the checksum in the first Size bytes of sum for messages: a number for crc32c, else the
// bytes.
func (c CsumType) Text(sum []byte) string {
	if c == CsumCRC32C {
		return fmt.Sprintf("0x%08x", le.Uint32(sum))
	}
	return fmt.Sprintf("0x%x", sum[:c.Size()])
}

// BlockText is Text of the checksum that b, a superblock or tree block, carries and of the one that
// it should carry.
func (c CsumType) BlockText(b []byte) (have, want string) {
	sum := c.Sum(b[CsumField:])
	return c.Text(b), c.Text(sum[:])
}

// BlockMatch reports whether b, a superblock or tree block, carries its checksum.
func (c CsumType) BlockMatch(b []byte) bool { return c.Match(b, b[CsumField:]) }
