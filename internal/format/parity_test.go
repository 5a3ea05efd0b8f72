package format

import (
	"fmt"
	"testing"
)

// TestFillParity: P and Q of units of any length are those of arithmetic byte by byte.
func TestFillParity(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 9} {
		for _, size := range []int{1, 7, 8, 13, 64, 515} {
			data := make([][]byte, n)
			for i := range data {
				for k := range size {
					data[i] = append(data[i], byte(i*113+k*k*7+k>>3))
				}
			}
			parity := [][]byte{make([]byte, size), make([]byte, size)}
			parity[0][0], parity[1][0] = 5, 6 // what was there does not count
			FillParity(data, parity)
			for k := range size {
				var p, q byte
				for i := range data {
					p ^= data[i][k]
					q ^= Multiply(data[i][k], power(i))
				}
				if parity[0][k] != p || parity[1][k] != q {
					t.Fatalf("%d units of %d bytes, byte %d: have %#x %#x want %#x %#x", n, size, k, parity[0][k], parity[1][k], p, q)
				}
			}
		}
	}
}

// TestMultiplyWord: the bytes of a word do not touch each other.
func TestMultiplyWord(t *testing.T) {
	for f := range 256 {
		w := uint64(0x80ff01007f1dfe3a)
		got := multiplyWord(w, byte(f))
		for i := range 8 {
			if have, want := byte(got>>(8*i)), Multiply(byte(w>>(8*i)), byte(f)); have != want {
				t.Fatalf("byte %d times %d: have %#x want %#x", i, f, have, want)
			}
		}
	}
}

func BenchmarkFillParity(b *testing.B) {
	for _, parity := range []int{1, 2} {
		b.Run(fmt.Sprint(parity), func(b *testing.B) {
			data, units := make([][]byte, 4), make([][]byte, parity)
			for i := range data {
				data[i] = make([]byte, StripeLen)
			}
			for i := range units {
				units[i] = make([]byte, StripeLen)
			}
			b.SetBytes(4 * StripeLen)
			for b.Loop() {
				FillParity(data, units)
			}
		})
	}
}
