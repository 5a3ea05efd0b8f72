package dm

import (
	"math"
	"math/rand/v2"
	"time"

	"btrlab/internal/blockdev"
)

// queue is the pure part of a model: when does a request end that arrives now? Every channel is a
// server with the time at which it will be free, so the answer is known at arrival and never
// changes.
type queue struct {
	p     Params
	size  int64
	rng   *rand.Rand
	disks []disk
	// cached are the writes in the cache, in order of arrival at the medium.
	cached      []cachedWrite
	cachedBytes int64
	lastWrite   int64 // when the last of all writes reaches the medium
}

type disk struct {
	free   []int64 // per channel
	head   int64   // where the last request ended, device bytes
	toGC   int64   // bytes to write until the next garbage collection
	stalls int64
}

type cachedWrite struct {
	done  int64
	bytes int64
}

func newQueue(p Params, size int64) *queue {
	q := &queue{p: p, size: max(size, 1), rng: rand.New(rand.NewPCG(p.Seed, 0x6274726c6162)), disks: make([]disk, p.Disks)}
	for i := range q.disks {
		q.disks[i].free = make([]int64, p.Channels)
		q.disks[i].toGC = q.nextGC()
	}
	return q
}

func (q *queue) nextGC() int64 {
	if q.p.GCBytes == 0 {
		return math.MaxInt64
	}
	return int64(q.rng.ExpFloat64() * float64(q.p.GCBytes))
}

// end is when a request that arrives at now is done.
func (q *queue) end(now int64, op blockdev.Op, off, n int64) int64 {
	switch op {
	case blockdev.OpFlush:
		return max(now, q.lastWrite) + int64(q.vary(float64(q.p.Flush), q.p.FlushJitter))
	case blockdev.OpRead:
		return q.transfer(now, op, off, n)
	}
	done := q.transfer(now, op, off, n)
	q.lastWrite = max(q.lastWrite, done)
	if q.p.CacheBytes > 0 {
		return min(done, q.cache(now, done, n))
	}
	return done
}

// cache is when a write of n bytes that reaches the medium at done has room in the cache.
func (q *queue) cache(now, done, n int64) int64 {
	for len(q.cached) > 0 && q.cached[0].done <= now {
		q.cachedBytes -= q.cached[0].bytes
		q.cached = q.cached[1:]
	}
	room := now
	over := q.cachedBytes + n - q.p.CacheBytes
	for i := 0; over > 0 && i < len(q.cached); i++ {
		over -= q.cached[i].bytes
		room = q.cached[i].done
	}
	if k := len(q.cached); k > 0 {
		done = max(done, q.cached[k-1].done) // room is given back in order
	}
	q.cached = append(q.cached, cachedWrite{done, n})
	q.cachedBytes += n
	return max(room, now) + int64(q.p.CacheWrite)
}

// transfer is when the medium has done a read or write: each member it touches does its part.
func (q *queue) transfer(now int64, op blockdev.Op, off, n int64) int64 {
	if q.p.ChunkBytes == 0 || q.p.Disks == 1 {
		return q.serve(&q.disks[0], now, op, off, n, 0)
	}
	end := now
	chunk := int64(q.p.ChunkBytes)
	data := int64(q.p.Disks)
	if q.p.Parity {
		data--
	}
	row := chunk * data
	for n > 0 {
		k := min(n, row-off%row)
		end = max(end, q.row(now, op, off, k, chunk, data, k == row))
		off, n = off+k, n-k
	}
	return end
}

// row does the part of a request that lies in one stripe row. RAID 5 writes a row that is not full
// by reading old data and old parity first, on the members where it will write the new.
func (q *queue) row(now int64, op blockdev.Op, off, n, chunk, data int64, full bool) int64 {
	end := now
	r := off / (chunk * data)
	parity := -1
	if q.p.Parity {
		parity = q.p.Disks - 1 - int(r%int64(q.p.Disks)) // left-symmetric, as md
	}
	rmw := op == blockdev.OpWrite && q.p.Parity && !full
	longest := int64(0)
	for n > 0 {
		k := min(n, chunk-off%chunk)
		longest = max(longest, k)
		m := int((off / chunk) % data)
		if parity >= 0 {
			m = (parity + 1 + m) % q.p.Disks
		}
		var extra int64
		if rmw {
			extra = q.service(blockdev.OpRead, k)
		}
		end = max(end, q.serve(&q.disks[m], now, op, off, k, extra))
		off, n = off+k, n-k
	}
	if op == blockdev.OpWrite && q.p.Parity {
		var extra int64
		if rmw {
			extra = q.service(blockdev.OpRead, longest)
		}
		end = max(end, q.serve(&q.disks[parity], now, op, off, longest, extra))
	}
	return end
}

// channel chooses the one that serves a request at off: the first that is free, but in flash the
// one where the block lies.
func (q *queue) channel(d *disk, now, off int64) int {
	if q.p.GCBytes > 0 {
		return int(uint64(off>>12) * 0x9e3779b97f4a7c15 >> 32 % uint64(len(d.free)))
	}
	c := 0
	for i, f := range d.free {
		if f <= now {
			return i
		}
		if f < d.free[c] {
			c = i
		}
	}
	return c
}

// serve puts n bytes at off on a channel of d; extra is service that comes before. A write that
// fills an erase block makes the channel collect one: it serves nothing meanwhile, the others go
// on.
func (q *queue) serve(d *disk, now int64, op blockdev.Op, off, n, extra int64) int64 {
	c := q.channel(d, now, off)
	start := max(now, d.free[c])
	end := start + extra + q.move(d, off) + q.service(op, n)
	d.head = off + n
	d.free[c] = end
	if op == blockdev.OpWrite {
		if d.toGC -= n; d.toGC <= 0 {
			d.toGC = q.nextGC()
			d.stalls++
			d.free[c] = end + q.pareto()
		}
	}
	return end
}

// move is the time to bring a rotating member's head to off.
func (q *queue) move(d *disk, off int64) int64 {
	if q.p.Turn == 0 || off == d.head {
		return 0
	}
	far := math.Sqrt(math.Abs(float64(off-d.head)) / float64(q.size))
	return int64(q.p.SeekMin) + int64(far*float64(q.p.SeekMax-q.p.SeekMin)) + int64(q.rng.Float64()*float64(q.p.Turn))
}

// service is how long a channel works on n bytes.
func (q *queue) service(op blockdev.Op, n int64) int64 {
	base := q.p.Read
	if op == blockdev.OpWrite {
		base = q.p.Write
	}
	s := float64(base)
	if n > 4096 && q.p.BytesPerSec > 0 && !q.p.Shared {
		s += float64(n-4096) / q.p.BytesPerSec * float64(time.Second)
	}
	return int64(q.vary(s, q.p.Jitter))
}

// vary is a time with a lognormal factor.
func (q *queue) vary(time, sigma float64) float64 {
	if sigma > 0 {
		time *= math.Exp(sigma * q.rng.NormFloat64())
	}
	return time
}

// pareto draws the length of a stall.
func (q *queue) pareto() int64 {
	lo, hi, a := float64(q.p.GCMin), float64(q.p.GCMax), q.p.GCShape
	u := q.rng.Float64()
	r := math.Pow(lo/hi, a)
	return int64(lo / math.Pow(1-u*(1-r), 1/a))
}
