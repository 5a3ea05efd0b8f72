package oracle

import "math/bits"

// bitset is a set of members of a component, a bit each.
type bitset []uint64

// row is set i of many that lie one after the other, of w words each.
func row(sets []uint64, i, w int) bitset { return sets[i*w : i*w+w : i*w+w] }

func (b bitset) has(i int32) bool { return b[i>>6]>>(uint(i)&63)&1 != 0 }
func (b bitset) add(i int32)      { b[i>>6] |= 1 << (uint(i) & 63) }
func (b bitset) drop(i int32)     { b[i>>6] &^= 1 << (uint(i) & 63) }

// join adds i and all of more.
func (b bitset) join(i int32, more bitset) {
	b.add(i)
	for j, x := range more {
		b[j] |= x
	}
}

func (b bitset) empty() bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// single returns the first member, and whether there are no others; -1 when the set is empty.
func (b bitset) single() (first int32, alone bool) {
	first = -1
	for j, x := range b {
		if x == 0 {
			continue
		}
		if first >= 0 {
			return first, false
		}
		if first = member(j, x); x&(x-1) != 0 {
			return first, false
		}
	}
	return first, true
}

// member is the first member in word j of a set, which is x and not zero.
func member(j int, x uint64) int32 { return int32(j<<6 + bits.TrailingZeros64(x)) }
