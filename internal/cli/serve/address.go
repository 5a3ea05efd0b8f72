package serve

import (
	"fmt"

	"btrlab/internal/cli/app"
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
func (a verbs) fitAddresses() error {
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
	if a.Cache.N > 0 && a.Cache.N <= room {
		return nil
	}
	if a.Cache.N == 0 && room >= app.MinCache {
		a.Cache.N = min(a.CacheSize(), room)
		return nil
	}
	want := max(a.Cache.N, app.MinCache)
	return fmt.Errorf("bad limit of the address space (ulimit -v), have %s want at least %s for caches of %s (--memory)",
		app.HumanSize(uint64(limit)), app.HumanSize(uint64(need+want/4*5)), app.HumanSize(uint64(want)))
}
