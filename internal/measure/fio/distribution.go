package fio

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Distribution is how random offsets are spread over a job's region. The zero value is uniform.
type Distribution struct {
	Zones []Zone
	Theta float64 // of zipf; 0: not zipf
	// blocks one after the other, over and over; nil: not a sequence
	Sequence []uint64
}

// Zone is a part of the region and its share of the requests.
type Zone struct{ Access, Size int } // percent

const wantDistribution = wantError("random, zipf:THETA, zoned:ACCESS/SIZE:... in percent, or sequence:BLOCK,BLOCK,...")

// parseDistribution reads random_distribution=. An entry of zoned without a percentage gets its
// share of what the others leave.
func parseDistribution(v string) (Distribution, error) {
	kind, rest, _ := strings.Cut(v, ":")
	switch kind {
	case "random":
		return Distribution{}, nil
	case "zipf":
		theta := 1.1
		if rest != "" {
			var err error
			if theta, err = strconv.ParseFloat(rest, 64); err != nil || !(theta > 0) || theta == 1 || theta > 10 {
				return Distribution{}, wantError("zipf:THETA with a THETA from 0 to 10 that is neither 0 nor 1")
			}
		}
		return Distribution{Theta: theta}, nil
	case "zoned":
		z, err := parseZones(rest)
		return Distribution{Zones: z}, err
	case "sequence":
		var blocks []uint64
		for _, e := range strings.Split(rest, ",") {
			n, err := strconv.ParseUint(e, 10, 63)
			if err != nil {
				return Distribution{}, wantDistribution
			}
			blocks = append(blocks, n)
		}
		return Distribution{Sequence: blocks}, nil
	}
	return Distribution{}, wantDistribution
}

func parseZones(v string) ([]Zone, error) {
	var zones []Zone
	for _, e := range strings.Split(v, ":") {
		z := Zone{-1, -1}
		access, size, _ := strings.Cut(e, "/")
		for i, p := range []string{access, size} {
			if p == "" {
				continue
			}
			n, err := strconv.Atoi(strings.TrimSuffix(p, "%"))
			if err != nil || n < 0 || n > 100 {
				return nil, wantDistribution
			}
			*z.field(i) = n
		}
		zones = append(zones, z)
	}
	for i := range 2 {
		sum, open := 0, 0
		for k := range zones {
			if p := *zones[k].field(i); p >= 0 {
				sum += p
			} else {
				open++
			}
		}
		for k := range zones {
			if p := zones[k].field(i); *p < 0 {
				*p = (100 - sum) / open
			}
		}
		if sum > 100 || open == 0 && sum != 100 {
			return nil, wantError(fmt.Sprintf("percentages that add up to 100, have %d", sum))
		}
	}
	return zones, nil
}

func (z *Zone) field(i int) *int {
	if i == 0 {
		return &z.Access
	}
	return &z.Size
}

// picker picks one of n blocks.
type picker interface {
	pick(r *random, n uint64) uint64
}

// picker is nil for a uniform distribution.
func (d *Distribution) picker(blocks uint64, stride bool) picker {
	switch {
	case d.Sequence != nil:
		return &sequence{blocks: d.Sequence, stride: stride}
	case d.Zones != nil:
		return zoned(d.Zones)
	case d.Theta != 0:
		return newZipf(blocks, d.Theta)
	}
	return nil
}

// sequence picks its blocks in turn. With stride each round lies the sequence's length further on.
// Models fio lib/rand.c's random_distribution=sequence, which is newer than 3.33.
type sequence struct {
	blocks []uint64
	stride bool
	at     uint64
}

func (s *sequence) pick(_ *random, n uint64) uint64 {
	length := uint64(len(s.blocks))
	b := s.blocks[s.at%length]
	if s.stride {
		b += s.at / length * length
	}
	s.at++
	return b % n
}

type zoned []Zone

func (z zoned) pick(r *random, n uint64) uint64 {
	p, from := int(r.below(100)), 0
	for i, zone := range z {
		if p -= zone.Access; p < 0 || i == len(z)-1 {
			lo, hi := n*uint64(from)/100, n*uint64(from+zone.Size)/100
			return min(lo+r.below(max(hi-lo, 1)), n-1)
		}
		from += zone.Size
	}
	return r.below(n)
}

// zipf picks rank k with a probability that falls as 1/k^theta. The ranks are spread over the
// region by a hash.
//
// Models fio lib/zipf.c, after Gray et al., "Quickly generating billion-record synthetic databases"
// (1994).
type zipf struct {
	theta, zeta2, zetan float64
}

// zipfTerms bounds the sum in newZipf, as in fio.
const zipfTerms = 10_000_000

func newZipf(n uint64, theta float64) *zipf {
	z := &zipf{theta: theta, zeta2: 1 + math.Pow(0.5, theta)}
	for i := uint64(1); i <= min(n, zipfTerms); i++ {
		z.zetan += math.Pow(1/float64(i), theta)
	}
	return z
}

func (z *zipf) pick(r *random, n uint64) uint64 {
	u := float64(r.next()>>11) / (1 << 53)
	rank := uint64(1)
	switch uz := u * z.zetan; {
	case uz < 1:
	case uz < z.zeta2:
		rank = 2
	default:
		eta := (1 - math.Pow(2/float64(n), 1-z.theta)) / (1 - z.zeta2/z.zetan)
		rank = 1 + uint64(float64(n)*math.Pow(eta*u-eta+1, 1/(1-z.theta)))
	}
	h := random(rank)
	return h.below(n)
}
