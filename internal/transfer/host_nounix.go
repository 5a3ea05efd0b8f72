//go:build !unix

package transfer

import iofs "io/fs"

// linked knows of no hard links here: each name becomes a file of its own.
func linked(iofs.FileInfo) (hostIno, bool) { return hostIno{}, false }

// hostID names no files here.
func hostID(iofs.FileInfo) (hostIno, bool) { return hostIno{}, false }

// owner knows of no owners here.
func owner(iofs.FileInfo) (uid, gid uint32, ok bool) { return 0, 0, false }
