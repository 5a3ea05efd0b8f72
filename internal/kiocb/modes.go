package kiocb

// Modes are the requests that an open file takes beyond reads and writes that may sleep. Models
// FMODE_NOWAIT and fop_flags.
type Modes uint8

// The modes.
const (
	// ModeNowait says that requests may carry Nowait. Models FMODE_NOWAIT.
	ModeNowait Modes = 1 << iota
	// ModeBufferWAsync says that buffered writes may, too. Models FOP_BUFFER_WASYNC, which seed 001
	// gave to btrfs.
	ModeBufferWAsync
	// ModeDIOParallelWrite says that a ring may give direct writes of one inode to many workers at
	// a time. Models FOP_DIO_PARALLEL_WRITE, which btrfs does not have.
	ModeDIOParallelWrite
)
