package fio

import "testing"

// TestPassOfMixedSizes: with the random map a request ends where one of the same pass has been, as
// in fio. The sizes of seed 003's job are 111 KiB on average; over a pass they are 29 to 34 KiB
// with fio 3.33 (3,865 to 4,531 requests for 128 MiB, by the seed), and they fall all the time.
// Without the map fio makes 1,183.
func TestPassOfMixedSizes(t *testing.T) {
	const blocks = 128 << 20 >> 12
	sizes := []BlockShare{{4 << 10, 20}, {8 << 10, 20}, {16 << 10, 20}, {32 << 10, 10}, {64 << 10, 10}, {128 << 10, 5}, {256 << 10, 5}, {512 << 10, 5}, {1 << 20, 5}}
	pass := func(m *blockMap) (requests, firstHalf int) {
		g := region{rnd: 1, unit: 4096, blocks: blocks, random: true, follow: 1, bmap: m}
		g.bs[DirWrite] = sizes
		for sum := 0; sum < blocks<<12; requests++ {
			_, n, ok := g.next(DirWrite)
			if !ok {
				t.Fatalf("the pass ends after %d bytes", sum)
			}
			if sum += n; sum <= blocks<<11 {
				firstHalf++
			}
		}
		return requests, firstHalf
	}
	n, half := pass(newBlockMap(blocks))
	if n < 3600 || n > 4800 || half > n*2/5 {
		t.Errorf("a pass has %d requests, %d of them for its first half; want 3600 to 4800, and two fifths at most", n, half)
	}
	if n, half = pass(nil); n < 1000 || n > 1400 || half < n*2/5 {
		t.Errorf("without the map: %d requests, %d for the first half; want 1000 to 1400, and two fifths at least", n, half)
	}
}
