package practice

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// random is splitmix64 (Steele, Lea and Flood 2014): the same numbers everywhere, whatever a
// library does.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	x := uint64(*r)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// under is a number from 0 to n-1.
func (r *random) under(n int) int { return int(r.next() >> 33 % uint64(n)) }

// chance is true in so many of a hundred.
func (r *random) chance(percent int) bool { return r.under(100) < percent }

// of is one of the elements of l.
func of[T any](r *random, l ...T) T { return l[r.under(len(l))] }

// StudentSeed is the seed of question n of a lab for a student: the hash of all three. Case and
// blanks around an id do not count.
func StudentSeed(id string, lab, n int) uint64 {
	h := sha256.Sum256(fmt.Appendf(nil, "btrlab practice\n%s\n%d\n%d\n", strings.ToLower(strings.TrimSpace(id)), lab, n))
	return binary.BigEndian.Uint64(h[:])
}
