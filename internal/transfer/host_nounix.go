//go:build !unix

package transfer

import iofs "io/fs"

// linked knows of no hard links here: each name becomes a file of its own.
func linked(iofs.FileInfo) (hostIno, bool) { return hostIno{}, false }
