//go:build !linux || portable

package blockdev

import "os"

// Same reports whether two names are of one file that is there.
func Same(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}
