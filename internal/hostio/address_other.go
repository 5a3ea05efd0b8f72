//go:build !linux

package hostio

// AddressSpace knows no limit on this system.
func AddressSpace() (used, limit int64, ok bool) { return 0, 0, false }
