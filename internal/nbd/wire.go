package nbd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"btrlab/internal/errno"
)

// The numbers of the protocol.
const (
	magicServer     = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption     = 0x49484156454f5054 // "IHAVEOPT"
	magicOptReply   = 0x3e889045565a9
	magicRequest    = 0x25609513
	magicSimple     = 0x67446698
	magicStructured = 0x668e33ef

	handshakeFixed, handshakeNoZeroes = 1, 2

	// transmission flags
	flagHasFlags  = 1 << 0
	flagReadOnly  = 1 << 1
	flagFlush     = 1 << 2
	flagFUA       = 1 << 3
	flagTrim      = 1 << 5
	flagZeroes    = 1 << 6
	flagDF        = 1 << 7
	flagMultiConn = 1 << 8

	optExportName, optAbort, optList   = 1, 2, 3
	optInfo, optGo, optStructuredReply = 6, 7, 8
	optListMeta, optSetMeta            = 9, 10

	repAck, repServer, repInfo, repMeta = 1, 2, 3, 4
	repErr                              = 1 << 31
	repErrUnsup, repErrInvalid          = repErr | 1, repErr | 3
	repErrUnknown, repErrTooBig         = repErr | 6, repErr | 9

	infoExport, infoName, infoBlockSize = 0, 1, 3

	cmdRead, cmdWrite, cmdDisc, cmdFlush = 0, 1, 2, 3
	cmdTrim, cmdZeroes, cmdStatus        = 4, 6, 7

	cmdFlagFUA, cmdFlagNoHole, cmdFlagDF, cmdFlagReqOne = 1, 2, 4, 8

	chunkDone                                      = 1
	chunkNone, chunkData, chunkStatus, chunkErrors = 0, 1, 5, 1<<15 | 1

	metaAllocation = "base:allocation"
	metaID         = 1
)

// The sizes that a client is told, in bytes. A read or a write moves at most MaxRequest.
const (
	minBlock       = 1
	preferredBlock = 4096
	MaxRequest     = 32 << 20
)

// nameMax bounds a name, and optionMax the data of an option, in bytes.
const (
	nameMax   = 4096
	optionMax = 64 << 10
)

var be = binary.BigEndian

// protocolError ends a connection whose client does not speak the protocol.
type protocolError string

func (e protocolError) Error() string { return string(e) }

func badf(format string, args ...any) error { return protocolError(fmt.Sprintf(format, args...)) }

// request is the header of a request.
type request struct {
	flags, cmd uint16
	cookie     uint64
	off        uint64
	n          uint32
}

const requestLen = 28

// commandNames are the operations of profiles.
var commandNames = map[uint16]string{cmdRead: "read", cmdWrite: "write", cmdFlush: "fsync", cmdTrim: "trim", cmdZeroes: "zero", cmdStatus: "extents"}

func (q *request) decode(p *[requestLen]byte) error {
	if m := be.Uint32(p[:]); m != magicRequest {
		return badf("bad request, have magic %#x want %#x", m, uint32(magicRequest))
	}
	*q = request{flags: be.Uint16(p[4:]), cmd: be.Uint16(p[6:]), cookie: be.Uint64(p[8:]), off: be.Uint64(p[16:]), n: be.Uint32(p[24:])}
	return nil
}

func (q *request) encode(p *[requestLen]byte) {
	be.PutUint32(p[:], magicRequest)
	be.PutUint16(p[4:], q.flags)
	be.PutUint16(p[6:], q.cmd)
	be.PutUint64(p[8:], q.cookie)
	be.PutUint64(p[16:], q.off)
	be.PutUint32(p[24:], q.n)
}

// cmdFlags are the flags that each command takes; FUA is valid for all.
var cmdFlags = map[uint16]uint16{
	cmdRead: cmdFlagFUA | cmdFlagDF, cmdWrite: cmdFlagFUA, cmdFlush: cmdFlagFUA, cmdTrim: cmdFlagFUA,
	cmdZeroes: cmdFlagFUA | cmdFlagNoHole, cmdStatus: cmdFlagFUA | cmdFlagReqOne,
}

// check is the error for a request that a disk of size bytes does not take.
func (q *request) check(size int64, readOnly bool) error {
	flags, known := cmdFlags[q.cmd]
	beyond := q.off > uint64(size) || uint64(q.n) > uint64(size)-q.off
	switch {
	case !known, q.flags&^flags != 0:
		return errno.EINVAL
	case q.cmd == cmdFlush:
		return nil
	case q.moves() && q.n > MaxRequest:
		return errno.EINVAL
	case readOnly && q.changes():
		return errno.EPERM
	case beyond && (q.cmd == cmdWrite || q.cmd == cmdZeroes):
		return errno.ENOSPC // the protocol has this number for it
	case beyond, q.cmd == cmdStatus && q.n == 0:
		return errno.EINVAL
	}
	return nil
}

// moves reports whether the request carries bytes to or from the disk.
func (q *request) moves() bool { return q.cmd == cmdRead || q.cmd == cmdWrite }

func (q *request) changes() bool {
	return q.cmd == cmdWrite || q.cmd == cmdTrim || q.cmd == cmdZeroes
}

// numbers are the errors that the protocol has, each with what becomes of ours. All others are EIO.
var numbers = [...]struct {
	err  error
	wire uint32
}{
	{errno.EPERM, 1}, {errno.EROFS, 1}, {errno.EACCES, 1}, {errno.EINVAL, 22}, {errno.ENOSPC, 28}, {errno.EDQUOT, 28},
	{errno.EFBIG, 28}, {errno.EOVERFLOW, 75}, {errno.EOPNOTSUPP, 95},
}

const wireEIO = 5

// wireErrno is the protocol's number of err.
func wireErrno(err error) uint32 {
	if err == nil {
		return 0
	}
	for _, n := range numbers {
		if errors.Is(err, n.err) {
			return n.wire
		}
	}
	return wireEIO
}

// option is an option of the negotiation.
type option struct {
	id     uint32
	data   []byte
	tooBig bool // its data was read and forgotten
}

// readOption reads one option.
func readOption(r *bufio.Reader) (o option, err error) {
	var h [16]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return o, err
	}
	if m := be.Uint64(h[:]); m != magicOption {
		return o, badf("bad option, have magic %#x want %#x", m, uint64(magicOption))
	}
	o.id = be.Uint32(h[8:])
	n := be.Uint32(h[12:])
	if n > optionMax {
		o.tooBig = true
		_, err = io.CopyN(io.Discard, r, int64(n))
		return o, err
	}
	o.data = make([]byte, n)
	_, err = io.ReadFull(r, o.data)
	return o, err
}

// cutName takes a name off p: its length in 32 bits, and its bytes.
func cutName(p []byte) (name string, rest []byte, ok bool) {
	if len(p) < 4 {
		return "", nil, false
	}
	n := be.Uint32(p)
	if n > nameMax || uint64(n) > uint64(len(p)-4) {
		return "", nil, false
	}
	return string(p[4 : 4+n]), p[4+n:], true
}

// parseInfo is the data of NBD_OPT_INFO and NBD_OPT_GO: the export, and what is asked about it.
func parseInfo(p []byte) (name string, infos []uint16, ok bool) {
	name, p, ok = cutName(p)
	if !ok || len(p) < 2 || len(p) != 2+2*int(be.Uint16(p)) {
		return "", nil, false
	}
	for p = p[2:]; len(p) > 0; p = p[2:] {
		infos = append(infos, be.Uint16(p))
	}
	return name, infos, true
}

// parseMeta is the data of NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT: the export, and
// the contexts that are asked for.
func parseMeta(p []byte) (name string, queries []string, ok bool) {
	name, p, ok = cutName(p)
	if !ok || len(p) < 4 {
		return "", nil, false
	}
	n := be.Uint32(p)
	p = p[4:]
	if uint64(n)*4 > uint64(len(p)) {
		return "", nil, false
	}
	for range n {
		var q string
		if q, p, ok = cutName(p); !ok {
			return "", nil, false
		}
		queries = append(queries, q)
	}
	return name, queries, len(p) == 0
}
