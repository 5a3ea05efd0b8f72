// Package kiocb is one request to read or write a file: where, and how. It is the word that the ways in (a system call, a ring, a
// mount) and the rooms that carry requests out have in common.
//
// Model: struct kiocb and the RWF_ flags of preadv2(2). Difference: the memory that is read into or written from is an argument
// beside it, as the iov_iter is in Linux.
package kiocb

// Request is where to read or write, and how.
type Request struct {
	Pos   uint64 // in bytes
	Flags Flags
}

// Flags are how a request is to be carried out.
type Flags uint32

// The flags. Their values are ours.
const (
	Nowait Flags = 1 << iota // IOCB_NOWAIT: EAGAIN where the request would sleep
	Direct                   // IOCB_DIRECT: not through the page cache
	DSync                    // IOCB_DSYNC: durable before it returns
	Append                   // IOCB_APPEND: at the end of the file, whatever Pos says
)
