package stats

import (
	"math"
	"math/big"
	"math/bits"
)

// The shape of a Hist, as fio's FIO_IO_U_PLAT_*: values below 128 ns have a bin of their own, above
// that every power of two is cut into 64 bins, so that a bin's middle is within 1/128 of the value.
const (
	histBits   = 6
	histSub    = 1 << histBits // 64
	histGroups = 29
	histBins   = histGroups * histSub // the last bin begins at about 17 s
)

// Hist records latencies in nanoseconds: fio's log-linear histogram, bin for bin, with exact count,
// minimum, maximum, mean and standard deviation. Add allocates nothing. A Hist has one writer;
// merge the writers' afterwards. The zero value is empty.
//
// Models fio stat.c:plat_val_to_idx() and add_stat_sample().
type Hist struct {
	n        uint64
	min, max int64
	sum      uint64 // ns
	sqHi     uint64 // sum of squares, 128 bits
	sqLo     uint64
	bins     [histBins]uint64
}

func binOf(ns uint64) int {
	msb := 63 - bits.LeadingZeros64(ns|1)
	if msb <= histBits {
		return int(ns)
	}
	shift := msb - histBits
	i := (shift+1)<<histBits + int(ns>>shift)&(histSub-1)
	return min(i, histBins-1)
}

// binValue is the middle of bin i, which stands for all that fell into it.
func binValue(i int) int64 {
	if i < 2*histSub {
		return int64(i)
	}
	shift := i>>histBits - 1
	base := int64(1) << (shift + histBits)
	k := int64(i % histSub)
	return base + k<<shift + int64(1)<<shift/2
}

// Add records one latency. Negative ones count as zero.
func (h *Hist) Add(ns int64) {
	if ns < 0 {
		ns = 0
	}
	if ns > h.max {
		h.max = ns
	}
	if ns < h.min || h.n == 0 {
		h.min = ns
	}
	u := uint64(ns)
	h.n++
	h.sum += u
	hi, lo := bits.Mul64(u, u)
	var c uint64
	h.sqLo, c = bits.Add64(h.sqLo, lo, 0)
	h.sqHi += hi + c
	h.bins[binOf(u)]++
}

// Merge adds all of o.
func (h *Hist) Merge(o *Hist) {
	if o.n == 0 {
		return
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
	var c uint64
	h.sqLo, c = bits.Add64(h.sqLo, o.sqLo, 0)
	h.sqHi += o.sqHi + c
	for i, b := range o.bins {
		h.bins[i] += b
	}
}

// N is the number of latencies recorded.
func (h *Hist) N() uint64 { return h.n }

// Min is the smallest, 0 when there is none.
func (h *Hist) Min() int64 { return h.min }

// Max is the largest.
func (h *Hist) Max() int64 { return h.max }

// Mean is the arithmetic mean.
func (h *Hist) Mean() float64 {
	if h.n == 0 {
		return 0
	}
	return float64(h.sum) / float64(h.n)
}

// Stddev is the sample standard deviation; with fewer than two samples it is 0.
func (h *Hist) Stddev() float64 {
	if h.n < 2 {
		return 0
	}
	// n*sumsq - sum^2 in integers: the difference of two large numbers that may be close.
	sq := new(big.Int).SetUint64(h.sqHi)
	sq.Lsh(sq, 64).Add(sq, new(big.Int).SetUint64(h.sqLo))
	n := new(big.Int).SetUint64(h.n)
	s := new(big.Int).SetUint64(h.sum)
	sq.Mul(sq, n).Sub(sq, s.Mul(s, s))
	f, _ := new(big.Float).SetInt(sq).Float64()
	return math.Sqrt(f / float64(h.n) / float64(h.n-1))
}

// Percentile is the smallest bin value that at least p percent of the latencies do not exceed, p in
// (0, 100]. It is never above Max nor below Min.
//
// Models fio stat.c:calc_clat_percentiles(), which does not clamp.
func (h *Hist) Percentile(p float64) int64 {
	if h.n == 0 {
		return 0
	}
	var sum uint64
	for i, b := range h.bins {
		sum += b
		if b > 0 && float64(sum) >= p/100*float64(h.n) {
			return max(h.min, min(binValue(i), h.max))
		}
	}
	return h.max
}

// Rank is the percentage of the latencies that are in ns's bin or in one below: which percentile ns
// is.
func (h *Hist) Rank(ns int64) float64 {
	if h.n == 0 {
		return 0
	}
	var sum uint64
	for _, b := range h.bins[:binOf(uint64(max(ns, 0)))+1] {
		sum += b
	}
	return 100 * float64(sum) / float64(h.n)
}

// Bin is one step of a distribution: Count latencies near Value.
type Bin struct {
	Value int64 // ns, the middle of the bin
	Count uint64
}

// Bins lists the bins that are not empty, ascending.
func (h *Hist) Bins() []Bin {
	var out []Bin
	for i, b := range h.bins {
		if b > 0 {
			out = append(out, Bin{binValue(i), b})
		}
	}
	return out
}
