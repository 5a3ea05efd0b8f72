package compress

import (
	"fmt"

	"btrlab/internal/errno"
)

// decodeZstd fails here.
func decodeZstd(_, _ []byte) (int, error) {
	return 0, fmt.Errorf("zstd is not read in a browser: %w", errno.EOPNOTSUPP)
}

// encodeZstd gives no stream, as for data that is not worth one.
func encodeZstd(_, _ []byte, _ int) []byte { return nil }
