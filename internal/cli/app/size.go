package app

import (
	"fmt"

	"btrlab/internal/script"
)

// ByteSize is a flag value in bytes.
type ByteSize = script.Size

// HumanSize shows n with two decimals, for people.
func HumanSize(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.2f%ciB", f, units[i])
}
