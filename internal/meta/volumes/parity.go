package volumes

import (
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// rebuild makes the bytes of a piece, whose own stripe is bad, from the others of its row. The
// mirror says which one other stripe is not to be used, for a caller to which the result of the
// mirrors before was wrong: 1 none; 2 P; from 3 on the data stripes, the last one first. A stripe
// that cannot be read is bad, too.
//
// Models fs/btrfs/raid56.c:raid56_parity_recover() and set_rbio_raid6_extra_error().
func (c *ChunkInfo) rebuild(t *sched.Task, vecs [][]byte, at format.Piece, mirror int) error {
	n := len(c.devs)
	size := 0
	for _, p := range vecs {
		size += len(p)
	}
	row := make([][]byte, n) // nil: bad
	skip := n
	if mirror > 1 {
		if skip = n - mirror; skip <= at.Data {
			skip--
		}
	}
	bad := 0
	for i := range row {
		s := format.RowStripe(n, at.Row, i)
		p := make([]byte, size)
		if i == at.Data || i == skip || blockdev.Read(t, c.devs[s].Device, p, int64(c.Chunk.Stripes[s].Offset+at.Off)) != nil {
			bad++
			continue
		}
		row[i] = p
	}
	if bad > c.profile.Parity {
		return fmt.Errorf("%d of %d stripes are bad, %s makes %d: %w", bad, n, c.profile.Name, c.profile.Parity, errno.EIO)
	}
	p := format.RecoverUnit(row, c.profile.Parity, at.Data)
	for _, v := range vecs {
		p = p[copy(v, p):]
	}
	return nil
}
