package cli

import (
	"fmt"

	"btrlab/internal/hostio"
)

// What a server needs of its address space beside the caches, in bytes. A limit of it that is
// reached ends a Go program in the middle of a request, so a server asks before it begins.
const (
	serverAddresses = 256 << 20 // stacks, buffers of requests, and what the collector moves
	// The C library reserves 64 MiB for each of many threads, up to eight times the processors.
	arenaAddresses = 1 << 30
)

// fitAddresses makes the default of the caches fit the limit of the address space (ulimit -v). If
// the caches that are asked for do not fit, or the least that there may be, it is an error.
func (a *app) fitAddresses() error {
	used, limit, limited := hostio.AddressSpace()
	if !limited {
		return nil
	}
	need := used + serverAddresses
	if withC {
		need += arenaAddresses
	}
	// The heap has up to a quarter more than what is in it.
	room := (limit - need) / 5 * 4
	if a.cache.n > 0 && a.cache.n <= room {
		return nil
	}
	if a.cache.n == 0 && room >= minCache {
		a.cache.n = min(a.cacheSize(), room)
		return nil
	}
	want := max(a.cache.n, minCache)
	return fmt.Errorf("bad limit of the address space (ulimit -v), have %s want at least %s for caches of %s (--memory)",
		humanSize(uint64(limit)), humanSize(uint64(need+want/4*5)), humanSize(uint64(want)))
}
