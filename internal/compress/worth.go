package compress

import (
	"bytes"
	"math/bits"
	"slices"
)

// The sample that Worth takes, and the bounds of its questions.
const (
	sampleStep  = 256 // bytes between the beginnings of two pieces of the sample
	sampleBytes = 16  // of a piece

	fewBytes    = 64  // text has fewer of the 256 values of a byte
	coreFew     = 64  // so few values make nine tenths of what compresses well
	coreMany    = 200 // and so many of what is random
	entropyHigh = 80  // percent of eight bits a byte
)

// Worth guesses from a sample whether the bytes, which are at most MaxLen, get shorter when they
// are compressed.
//
// Models fs/btrfs/compression.c:btrfs_compress_heuristic(): the halves of the sample are equal, few
// values occur, few make most of it, or its entropy is low.
func Worth(p []byte) bool {
	sample := make([]byte, 0, MaxLen/sampleStep*sampleBytes)
	for at := 0; at+sampleBytes <= len(p); at += sampleStep {
		sample = append(sample, p[at:at+sampleBytes]...)
	}
	half := len(sample) / 2
	if bytes.Equal(sample[:half], sample[half:2*half]) {
		return true
	}
	var count [256]int
	for _, b := range sample {
		count[b]++
	}
	slices.SortFunc(count[:], func(a, b int) int { return b - a })
	if count[fewBytes-1] == 0 {
		return true
	}
	switch core := coreSet(&count, len(sample)); {
	case core <= coreFew:
		return true
	case core >= coreMany:
		return false
	}
	return entropy(&count, len(sample)) < entropyHigh
}

// coreSet is how many of the most frequent values make more than nine tenths of a sample of n
// bytes, at least coreFew and at most coreMany. Models byte_core_set_size().
func coreSet(count *[256]int, n int) int {
	sum := 0
	for i, c := range count[:coreMany] {
		if i >= coreFew && c == 0 {
			return i
		}
		if sum += c; i >= coreFew-1 && sum > n*90/100 {
			return max(i, coreFew)
		}
	}
	return coreMany
}

// entropy is that of a sample of n bytes in percent of eight bits a byte, in whole quarters of a
// bit. Models shannon_entropy().
func entropy(count *[256]int, n int) int {
	quarters := func(n int) int { return bits.Len(uint(n*n*n*n)) - 1 } // of the logarithm
	sum := 0
	for _, c := range count {
		if c > 0 {
			sum += c * (quarters(n) - quarters(c))
		}
	}
	return sum / n * 100 / (8 * quarters(2))
}
