// Package dm puts something between a file system and its device: a latency and queue model
// (Model), errors on demand (Flakey), or a log of every write from which crash images are built
// (LogWrites). Each takes a blockdev.Device and is one, so they stack.
//
// Model: the names follow Linux's device mapper targets dm-delay, dm-flakey and dm-log-writes.
package dm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Params is a latency and queue model: member disks with channels that serve one request each, in
// order of arrival. It is made of what a data sheet says (service times, channels), so that
// throughput and tail come out of the queue and need no numbers of their own.
type Params struct {
	Name string
	// About says in a line what is modelled.
	About string

	Disks    int // members
	Channels int // requests that a member serves at once
	Depth    int // requests inside the device; Submit sleeps while there are so many

	// Plug says that Depth is the stripe cache of md, in the simulated runtime: a request takes its
	// place there at once and begins when its submitter sleeps, if that has a plug; and who finds
	// no place waits until a quarter of them is free.
	Plug bool

	ChunkBytes int // stripe unit; a request goes to the member of each chunk it touches
	// RAID 5: one chunk of each row is parity, and a write of less than a row reads first
	Parity bool
	// Handle is the CPU time that the array's one thread spends on a write, in the simulated
	// runtime: raid5d of md, which reads, computes parity, starts the writes and ends the request.
	// It bounds the writes of a second whatever the members can do.
	Handle time.Duration
	// Interrupt is the CPU time of the end of one request at a member, in the simulated runtime: a
	// small write of a RAID 5 has four of them. They end on CPUs of their own, one for each member
	// at most, and nobody waits for them: they only keep the machine busy.
	Interrupt time.Duration

	// Queues is how many tasks end requests, in the simulated runtime: the hardware queues of
	// blk-mq, each with an interrupt on a CPU of its own. The requests of one submitter end in one
	// queue; submitters get queues in turn. 0 is one, the device's own task.
	Queues int

	Read, Write time.Duration // service of a request's first 4 KiB
	BytesPerSec float64       // of one channel, for the bytes after the first 4 KiB
	// Shared says that BytesPerSec is of the device: when a channel has served a request, for Read
	// or Write whatever its size, all its bytes move, and the requests that do so share the rate in
	// equal parts.
	Shared bool
	Jitter float64       // sigma of the lognormal factor on each service time
	Flush  time.Duration // of a flush, after all writes that came before it
	// FlushJitter is the sigma of the lognormal factor on Flush.
	FlushJitter float64

	// After GCBytes written to a member, on average (exponential), the channel that wrote last
	// collects garbage and serves nothing for a time between GCMin and GCMax (bounded Pareto with
	// shape GCShape). 0 is never. With garbage collection a block lies in one channel, and only
	// that one serves it.
	GCBytes      int64
	GCMin, GCMax time.Duration
	GCShape      float64

	// A rotating member moves its head: between SeekMin and SeekMax with the root of the distance,
	// then waits for up to one Turn. A request that begins where the last one ended does neither.
	SeekMin, SeekMax, Turn time.Duration

	// A write ends after CacheWrite when CacheBytes have room for it, and reaches the medium later.
	CacheBytes int64
	CacheWrite time.Duration

	Seed uint64 // of everything random
}

// table holds the models. Sources of the numbers: nvme, a data-centre drive of 2020 (4 KiB random
// read 80 us, write 20 us into its protected buffer, about 500k iops at depth 64); ssd-raid5, seed
// 002's volume of six Intel S3710 200 GB (data sheet: 85k random reads and 43k random writes a
// second per drive) under md RAID 5, where a small write costs a read and a write on two members,
// some 85k a second for the volume, less what uneven channels lose. The data sheet's write rate is
// the sustained one: an eighth of it is garbage collection, which stops one channel of a member for
// 8 to 50 ms after some 2.5 MiB, about an erase block, so a write takes 162 us and not 186; hdd, a
// drive of 7,200 turns a minute; disk, what SATA 6 Gb/s moves and
// its queue of 32, with the latency of an SSD.
var table = []Params{
	{
		Name: "nvme", About: "data-centre NVMe drive: 80 us reads, 20 us buffered writes, 40 channels",
		Disks: 1, Channels: 40, Depth: 1024,
		Read: 80 * time.Microsecond, Write: 75 * time.Microsecond, BytesPerSec: 400e6, Jitter: 0.15,
		CacheBytes: 64 << 20, CacheWrite: 20 * time.Microsecond, Flush: 50 * time.Microsecond,
	},
	{
		Name: "ssd-raid5", About: "six SATA SSDs as RAID 5: small writes 0.3 ms, a tail of tens of ms from garbage collection",
		Disks: 6, Channels: 8, Depth: 1024, ChunkBytes: 64 << 10, Parity: true,
		Read: 94 * time.Microsecond, Write: 162 * time.Microsecond, BytesPerSec: 60e6, Jitter: 0.25,
		GCBytes: 2560 << 10, GCMin: 8 * time.Millisecond, GCMax: 50 * time.Millisecond, GCShape: 1.3,
		Flush: 300 * time.Microsecond,
	},
	{
		Name: "hdd", About: "7,200 rpm disk with a 32 MiB write cache",
		Disks: 1, Channels: 1, Depth: 32,
		Read: 50 * time.Microsecond, Write: 50 * time.Microsecond, BytesPerSec: 180e6, Jitter: 0.05,
		SeekMin: 500 * time.Microsecond, SeekMax: 14 * time.Millisecond, Turn: 8333 * time.Microsecond,
		CacheBytes: 32 << 20, CacheWrite: 100 * time.Microsecond, Flush: time.Millisecond,
	},
	{
		Name: "disk", About: "0.1 ms (read=, write=), then 550 MB/s (rate=) that all requests in transfer share",
		Disks: 1, Channels: 32, Depth: 32, Shared: true,
		Read: 100 * time.Microsecond, Write: 100 * time.Microsecond, BytesPerSec: 550e6, Flush: time.Millisecond,
	},
	{
		Name: "delay", About: "every request takes 1 ms (read=, write=), any number at once; rate= adds a transfer",
		Disks: 1, Channels: 1024, Depth: 1024,
		Read: time.Millisecond, Write: time.Millisecond, Flush: time.Millisecond,
	},
}

// Models lists the models.
func Models() []Params { return append([]Params(nil), table...) }

// Names lists the names of the models.
func Names() []string {
	var n []string
	for _, p := range table {
		n = append(n, p.Name)
	}
	return n
}

// Parse reads "NAME" or "NAME:key=value,...": a model with some of its parameters changed. The keys
// are disks, channels, depth, queues, chunk, handle, interrupt, read, write, rate, jitter, flush,
// flush-jitter, gc-bytes, gc-min, gc-max, gc-shape, cache, seed, plug and shared (0 or 1), and
// slower, which multiplies every time.
func Parse(spec string) (Params, error) {
	name, rest, _ := strings.Cut(spec, ":")
	for _, p := range table {
		if p.Name != name {
			continue
		}
		for kv := range strings.SplitSeq(rest, ",") {
			if kv == "" {
				continue
			}
			k, v, ok := strings.Cut(kv, "=")
			if !ok {
				return p, fmt.Errorf("device model %q: %q is not key=value", spec, kv)
			}
			if err := p.set(k, v); err != nil {
				return p, fmt.Errorf("device model %q: %w", spec, err)
			}
		}
		return p, p.check()
	}
	return Params{}, fmt.Errorf("device model %q is not known, there are %s", name, strings.Join(Names(), ", "))
}

func (p *Params) set(k, v string) error {
	ints := map[string]*int{"disks": &p.Disks, "channels": &p.Channels, "depth": &p.Depth, "queues": &p.Queues, "chunk": &p.ChunkBytes}
	longs := map[string]*int64{"gc-bytes": &p.GCBytes, "cache": &p.CacheBytes}
	floats := map[string]*float64{"rate": &p.BytesPerSec, "jitter": &p.Jitter, "flush-jitter": &p.FlushJitter, "gc-shape": &p.GCShape}
	times := map[string]*time.Duration{"handle": &p.Handle, "interrupt": &p.Interrupt, "read": &p.Read, "write": &p.Write, "flush": &p.Flush, "gc-min": &p.GCMin, "gc-max": &p.GCMax}
	var err error
	switch {
	case ints[k] != nil:
		*ints[k], err = strconv.Atoi(v)
	case longs[k] != nil:
		*longs[k], err = strconv.ParseInt(v, 10, 64)
	case floats[k] != nil:
		*floats[k], err = strconv.ParseFloat(v, 64)
	case times[k] != nil:
		*times[k], err = time.ParseDuration(v)
	case k == "plug":
		p.Plug, err = strconv.ParseBool(v)
	case k == "shared":
		p.Shared, err = strconv.ParseBool(v)
	case k == "seed":
		p.Seed, err = strconv.ParseUint(v, 10, 64)
	case k == "slower":
		var f float64
		if f, err = strconv.ParseFloat(v, 64); err == nil {
			*p = p.Slower(f)
		}
	default:
		return fmt.Errorf("key %q is not known", k)
	}
	if err != nil {
		return fmt.Errorf("%s=%q: %w", k, v, err)
	}
	return nil
}

// Slower is p with every time multiplied by f and every rate divided by it.
func (p Params) Slower(f float64) Params {
	for _, d := range []*time.Duration{&p.Handle, &p.Interrupt, &p.Read, &p.Write, &p.Flush, &p.GCMin, &p.GCMax, &p.SeekMin, &p.SeekMax, &p.Turn, &p.CacheWrite} {
		*d = time.Duration(float64(*d) * f)
	}
	p.BytesPerSec /= f
	return p
}

func (p *Params) check() error {
	switch {
	case p.Disks < 1 || p.Channels < 1 || p.Depth < 1 || p.Disks*p.Channels > 1<<16:
		return fmt.Errorf("device model %s: disks %d, channels %d, depth %d, want at least 1 and at most 65536 channels", p.Name, p.Disks, p.Channels, p.Depth)
	case p.Parity && (p.Disks < 3 || p.ChunkBytes < 4096):
		return fmt.Errorf("device model %s: RAID 5 with %d disks and chunks of %d bytes, want at least 3 and 4096", p.Name, p.Disks, p.ChunkBytes)
	case p.Queues < 0 || p.Handle < 0 || p.Interrupt < 0 || p.Read < 0 || p.Write < 0 || p.Flush < 0 || p.Jitter < 0 || p.FlushJitter < 0 || p.BytesPerSec < 0 || p.ChunkBytes < 0:
		return fmt.Errorf("device model %s: a parameter is negative", p.Name)
	case p.Shared && (p.BytesPerSec <= 0 || p.Disks > 1 || p.CacheBytes > 0):
		return fmt.Errorf("device model %s: shared needs a rate, one disk and no cache", p.Name)
	case p.GCBytes > 0 && (p.GCMin <= 0 || p.GCMax < p.GCMin || p.GCShape <= 0):
		return fmt.Errorf("device model %s: garbage collection of %v to %v with shape %g", p.Name, p.GCMin, p.GCMax, p.GCShape)
	}
	return nil
}
