// Package sendstream is the format of a send stream: the commands with which btrfs send describes a
// subvolume, or its difference from another one, and btrfs receive makes it again.
//
//	stream   "btrfs-stream" and a zero byte, the version in 4 bytes, then commands up to END
//	command  length of the attributes (4), number (2), checksum (4), then the attributes
//	attribute  number (2), length (2), value; the DATA of version 2 has no length: it is the last
//	         one and ends with the command
//
// Numbers are little-endian. The checksum is crc32c of the whole command with 0 in its place,
// without the two inversions of the usual crc32c.
//
// Model: fs/btrfs/send.h, and the Documentation of btrfs-progs (dev-send-stream).
package sendstream

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"btrlab/internal/format"
)

// Versions of the format. Version 2 has longer data, data as it is compressed on disk, fallocate
// and inode flags; version 3 has fs-verity.
const (
	MinVersion = 1
	MaxVersion = 3
)

const (
	magic        = "btrfs-stream\x00"
	headerSize   = len(magic) + 4
	commandSize  = 10 // the header of a command
	fieldSize    = 4  // the header of an attribute
	maxCommandV1 = 64 << 10
	// maxCommand bounds a command of later versions, which have no bound of their own: the kernel's
	// longest is 144 KiB.
	maxCommand = 16 << 20
)

// Bytes of file data in one command, as the kernel sends them: BTRFS_SEND_READ_SIZE, and what its
// buffer has room for in version 2.
const (
	MaxDataV1 = 48 << 10
	MaxDataV2 = 128 << 10
)

// Cmd is the number of a command.
type Cmd uint16

// The commands: BTRFS_SEND_C_...
const (
	C_SUBVOL Cmd = iota + 1
	C_SNAPSHOT
	C_MKFILE
	C_MKDIR
	C_MKNOD
	C_MKFIFO
	C_MKSOCK
	C_SYMLINK
	C_RENAME
	C_LINK
	C_UNLINK
	C_RMDIR
	C_SET_XATTR
	C_REMOVE_XATTR
	C_WRITE
	C_CLONE
	C_TRUNCATE
	C_CHMOD
	C_CHOWN
	C_UTIMES
	C_END
	C_UPDATE_EXTENT
	C_FALLOCATE
	C_FILEATTR
	C_ENCODED_WRITE
	C_ENABLE_VERITY
)

// Attr is the number of an attribute.
type Attr uint16

// The attributes: BTRFS_SEND_A_...
const (
	A_UUID Attr = iota + 1
	A_CTRANSID
	A_INO
	A_SIZE
	A_MODE
	A_UID
	A_GID
	A_RDEV
	A_CTIME
	A_MTIME
	A_ATIME
	A_OTIME
	A_XATTR_NAME
	A_XATTR_DATA
	A_PATH
	A_PATH_TO
	A_PATH_LINK
	A_FILE_OFFSET
	A_DATA
	A_CLONE_UUID
	A_CLONE_CTRANSID
	A_CLONE_PATH
	A_CLONE_OFFSET
	A_CLONE_LEN
	A_FALLOCATE_MODE
	A_FILEATTR
	A_UNENCODED_FILE_LEN
	A_UNENCODED_LEN
	A_UNENCODED_OFFSET
	A_COMPRESSION
	A_ENCRYPTION
	A_VERITY_ALGORITHM
	A_VERITY_BLOCK_SIZE
	A_VERITY_SALT_DATA
	A_VERITY_SIG_DATA
	attrs // one more than the last
)

// Compression of the data of ENCODED_WRITE: BTRFS_ENCODED_IO_COMPRESSION_...
const (
	EncodedNone = iota
	EncodedZlib
	EncodedZstd
	EncodedLZO4K  // sectors of 4 KiB; the next ones are those of 8 to 64 KiB
	EncodedLZO64K = EncodedLZO4K + 4
)

// kind is the type of an attribute's value.
type kind uint8

const (
	kindU8 kind = iota
	kindU32
	kindU64
	kindBytes
	kindPath // text without a zero byte
	kindUUID
	kindTime
)

// size is the length of a value in bytes; 0 is any.
func (k kind) size() int {
	return [...]int{kindU8: 1, kindU32: 4, kindU64: 8, kindBytes: 0, kindPath: 0, kindUUID: 16, kindTime: 12}[k]
}

// attrTable has the name and the type of each attribute.
var attrTable = [attrs]struct {
	name string
	kind kind
}{
	A_UUID: {"uuid", kindUUID}, A_CTRANSID: {"ctransid", kindU64}, A_INO: {"ino", kindU64}, A_SIZE: {"size", kindU64}, A_MODE: {"mode", kindU64},
	A_UID: {"uid", kindU64}, A_GID: {"gid", kindU64}, A_RDEV: {"rdev", kindU64}, A_CTIME: {"ctime", kindTime}, A_MTIME: {"mtime", kindTime},
	A_ATIME: {"atime", kindTime}, A_OTIME: {"otime", kindTime}, A_XATTR_NAME: {"xattr_name", kindPath}, A_XATTR_DATA: {"xattr_data", kindBytes},
	A_PATH: {"path", kindPath}, A_PATH_TO: {"path_to", kindPath}, A_PATH_LINK: {"path_link", kindPath}, A_FILE_OFFSET: {"file_offset", kindU64},
	A_DATA: {"data", kindBytes}, A_CLONE_UUID: {"clone_uuid", kindUUID}, A_CLONE_CTRANSID: {"clone_ctransid", kindU64},
	A_CLONE_PATH: {"clone_path", kindPath}, A_CLONE_OFFSET: {"clone_offset", kindU64}, A_CLONE_LEN: {"clone_len", kindU64},
	A_FALLOCATE_MODE: {"fallocate_mode", kindU32}, A_FILEATTR: {"fileattr", kindU64}, A_UNENCODED_FILE_LEN: {"unencoded_file_len", kindU64},
	A_UNENCODED_LEN: {"unencoded_len", kindU64}, A_UNENCODED_OFFSET: {"unencoded_offset", kindU64}, A_COMPRESSION: {"compression", kindU32},
	A_ENCRYPTION: {"encryption", kindU32}, A_VERITY_ALGORITHM: {"verity_algorithm", kindU8}, A_VERITY_BLOCK_SIZE: {"verity_block_size", kindU32},
	A_VERITY_SALT_DATA: {"verity_salt_data", kindBytes}, A_VERITY_SIG_DATA: {"verity_sig_data", kindBytes},
}

// cmdTable has the name of each command, the version that brought it and the attributes that it
// must have.
var cmdTable = [...]struct {
	name    string
	version uint32
	needs   []Attr
}{
	C_SUBVOL:        {"subvol", 1, []Attr{A_PATH, A_UUID, A_CTRANSID}},
	C_SNAPSHOT:      {"snapshot", 1, []Attr{A_PATH, A_UUID, A_CTRANSID, A_CLONE_UUID, A_CLONE_CTRANSID}},
	C_MKFILE:        {"mkfile", 1, []Attr{A_PATH}},
	C_MKDIR:         {"mkdir", 1, []Attr{A_PATH}},
	C_MKNOD:         {"mknod", 1, []Attr{A_PATH, A_MODE, A_RDEV}},
	C_MKFIFO:        {"mkfifo", 1, []Attr{A_PATH}},
	C_MKSOCK:        {"mksock", 1, []Attr{A_PATH}},
	C_SYMLINK:       {"symlink", 1, []Attr{A_PATH, A_PATH_LINK}},
	C_RENAME:        {"rename", 1, []Attr{A_PATH, A_PATH_TO}},
	C_LINK:          {"link", 1, []Attr{A_PATH, A_PATH_LINK}},
	C_UNLINK:        {"unlink", 1, []Attr{A_PATH}},
	C_RMDIR:         {"rmdir", 1, []Attr{A_PATH}},
	C_SET_XATTR:     {"set_xattr", 1, []Attr{A_PATH, A_XATTR_NAME, A_XATTR_DATA}},
	C_REMOVE_XATTR:  {"remove_xattr", 1, []Attr{A_PATH, A_XATTR_NAME}},
	C_WRITE:         {"write", 1, []Attr{A_PATH, A_FILE_OFFSET, A_DATA}},
	C_CLONE:         {"clone", 1, []Attr{A_PATH, A_FILE_OFFSET, A_CLONE_LEN, A_CLONE_UUID, A_CLONE_CTRANSID, A_CLONE_PATH, A_CLONE_OFFSET}},
	C_TRUNCATE:      {"truncate", 1, []Attr{A_PATH, A_SIZE}},
	C_CHMOD:         {"chmod", 1, []Attr{A_PATH, A_MODE}},
	C_CHOWN:         {"chown", 1, []Attr{A_PATH, A_UID, A_GID}},
	C_UTIMES:        {"utimes", 1, []Attr{A_PATH, A_ATIME, A_MTIME}},
	C_END:           {"end", 1, nil},
	C_UPDATE_EXTENT: {"update_extent", 1, []Attr{A_PATH, A_FILE_OFFSET, A_SIZE}},
	C_FALLOCATE:     {"fallocate", 2, []Attr{A_PATH, A_FALLOCATE_MODE, A_FILE_OFFSET, A_SIZE}},
	C_FILEATTR:      {"fileattr", 2, []Attr{A_PATH, A_FILEATTR}},
	C_ENCODED_WRITE: {"encoded_write", 2, []Attr{A_PATH, A_FILE_OFFSET, A_UNENCODED_FILE_LEN, A_UNENCODED_LEN, A_UNENCODED_OFFSET, A_DATA}},
	C_ENABLE_VERITY: {"enable_verity", 3, []Attr{A_PATH, A_VERITY_ALGORITHM, A_VERITY_BLOCK_SIZE}},
}

// known reports whether the command is one of the table.
func (c Cmd) known() bool { return c > 0 && int(c) < len(cmdTable) }

// String is the command's name in lower case.
func (c Cmd) String() string {
	if !c.known() {
		return fmt.Sprintf("command %d", uint16(c))
	}
	return cmdTable[c].name
}

// String is the attribute's name in lower case.
func (a Attr) String() string {
	if a == 0 || a >= attrs {
		return fmt.Sprintf("attribute %d", uint16(a))
	}
	return attrTable[a].name
}

// Field is one attribute of a command.
type Field struct {
	Attr  Attr
	Value []byte
}

// Command is one command as it was read: complete, and each value as long as its type. The bytes
// are good until the next one is read.
type Command struct {
	Cmd    Cmd
	Offset int64 // in the stream: where its header begins, in bytes
	Number int   // among the commands of the stream, from 1
	Fields []Field
}

// Has reports whether the command has the attribute.
func (c *Command) Has(a Attr) bool {
	for i := range c.Fields {
		if c.Fields[i].Attr == a {
			return true
		}
	}
	return false
}

// Bytes is the value of an attribute; nil when the command does not have it.
func (c *Command) Bytes(a Attr) []byte {
	for i := range c.Fields {
		if c.Fields[i].Attr == a {
			return c.Fields[i].Value
		}
	}
	return nil
}

// Text is a path or a name; empty when the command does not have it.
func (c *Command) Text(a Attr) string { return string(c.Bytes(a)) }

// Uint is a number; 0 when the command does not have it.
func (c *Command) Uint(a Attr) (n uint64) {
	b := c.Bytes(a)
	for i := range b {
		n |= uint64(b[i]) << (8 * i)
	}
	return n
}

// UUID is a uuid; zero when the command does not have it.
func (c *Command) UUID(a Attr) (u format.UUID) {
	copy(u[:], c.Bytes(a))
	return u
}

// Time is a time; zero when the command does not have it.
func (c *Command) Time(a Attr) (ts format.Timespec) {
	if b := c.Bytes(a); b != nil {
		ts.Sec, ts.Nsec = int64(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint32(b[8:])
	}
	return ts
}

// Errorf is an error of the command: it names the place and the command.
func (c *Command) Errorf(msg string, args ...any) error {
	return fmt.Errorf("stream byte=%d command=%d (%v): %w", c.Offset, c.Number, c.Cmd, fmt.Errorf(msg, args...))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum goes on with the checksum crc over p. Models btrfs_crc32c().
func sum(crc uint32, p []byte) uint32 { return ^crc32.Update(^crc, castagnoli, p) }

// commandSum is the checksum of a command: its header, whatever checksum that has, and the rest.
func commandSum(header, rest []byte) uint32 {
	var h [commandSize]byte
	copy(h[:6], header)
	return sum(sum(0, h[:]), rest)
}
