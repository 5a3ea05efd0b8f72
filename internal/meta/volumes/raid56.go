package volumes

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// The writing of RAID5 and RAID6. A write of 4 KiB on three devices:
//
//	Submit            cuts the bio at the ends of rows; each part becomes an rbio
//	lockStripe        the row is free: the rbio owns it. Else it waits, joined to the writes
//	                  that wait already
//	run               copies the bytes of the bio, and starts reads of the other data units in the
//	                  same columns; a whole row reads nothing
//	readEnd           the last read is done: a task of its own goes on
//	rebuild           units that cannot be read are made from the old parity
//	write             the parity is made, and data and parity are written at once
//	writeEnd          the last write is done: unlockStripe hands the row to the rbio that waits,
//	                  and the bios end
//
// A column is a sector of each unit of the row, at the same place in all. Only columns with new
// bytes are read and written (labs/reference 15).

var stripeClass = lockdep.NewClass("stripe_hash")

// columns is a set of the sectors of a unit, or of the columns of a row: bit i is sector i.
type columns uint16

const allColumns = ^columns(0) // of format.StripeLen/format.SectorSize bits

// run is sectors of a unit, from lo on, before hi.
type run struct{ lo, hi int }

// runs lists the sectors of a set, ascending.
func (c columns) runs() (list []run) {
	for c != 0 {
		lo := bits.TrailingZeros16(uint16(c))
		hi := lo + bits.TrailingZeros16(^uint16(c>>lo))
		list = append(list, run{lo, hi})
		c &^= of(run{lo, hi})
	}
	return list
}

func of(r run) columns { return allColumns >> (16 - r.hi + r.lo) << r.lo }

// stripeBuckets is the number of buckets of the stripe hash table. Linux has 2048.
const stripeBuckets = 64

// stripeTable has the rows that are locked. Models struct btrfs_stripe_hash_table.
type stripeTable struct {
	unlocked atomic.Bool // SetStripesUnlocked
	buckets  [stripeBuckets]stripeBucket
}

type stripeBucket struct {
	mu     lock.Mutex // class stripe_hash; protects owners and their lists of waiting rbios
	owners []*rbio
}

// SetStripesUnlocked lets operations on one row go on together, if yes: a wrong order of the
// museum. It is for requests that come later.
func (v *Volumes) SetStripesUnlocked(yes bool) { v.stripes.unlocked.Store(yes) }

func (s *stripeTable) init() {
	for i := range s.buckets {
		s.buckets[i].mu.Init(stripeClass)
	}
}

// rbio is an operation on one row: writes of parts of it, or the recovery of a piece that cannot be
// read. It begins once it owns the row's stripe lock.
//
// Models struct btrfs_raid_bio. Differences: data is copied, so that its parity is right although a
// direct write's memory changes meanwhile; there is no cache of rows.
type rbio struct {
	c   *ChunkInfo
	row uint64

	parts   []rowPart // of a write, in the order of their bios
	recover func(t *sched.Task)
	waiting []*rbio // for the row that the rbio owns, in order

	// Of a write that owns the row.
	wrote [][]byte  // see unit
	new   []columns // of each data unit, that the bios have
	all   columns   // that any data unit has
	io    []*rowIO
	left  atomic.Int32 // bios of io whose end has not come, and the submitter
}

// rowPart is a bio that lies in one row, from bytes after the start of the row's data.
type rowPart struct {
	bio  *blockdev.Bio
	from uint64
}

// rowIO is a bio of sectors of one unit.
type rowIO struct {
	blockdev.Bio
	unit int
	run  run
}

// start is the address of the first byte of the row, by which the row is known.
func (r *rbio) start() uint64 { return r.c.Logical + r.row*r.c.rowBytes() }

// rowBytes is how many bytes of the chunk's data are in a row.
func (c *ChunkInfo) rowBytes() uint64 {
	return uint64(c.profile.DataStripes(len(c.devs))) * format.StripeLen
}

// submitRows starts a write of n bytes of a chunk with parity, row by row. Models
// raid56_parity_write(). Difference: there is no plug; writes of one row join only while the row is
// locked.
func (v *Volumes) submitRows(t *sched.Task, b *blockdev.Bio, c *ChunkInfo, n uint64) {
	delta, size := uint64(b.Off)-c.Logical, c.rowBytes()
	if delta%size+n <= size {
		(&rbio{c: c, row: delta / size, parts: []rowPart{{b, delta % size}}}).begin(t)
		return
	}
	s := &split{whole: b}
	s.left.Store(1)
	for at := uint64(0); at < n; {
		from := (delta + at) % size
		k := min(n-at, size-from)
		s.left.Add(1)
		part := &blockdev.Bio{Op: b.Op, Off: b.Off + int64(at), Vecs: cut(b.Vecs, int(at), int(k)), EndIO: endPiece, Private: s}
		(&rbio{c: c, row: (delta + at) / size, parts: []rowPart{{part, from}}}).begin(t)
		at += k
	}
	s.end(t)
}

// begin runs the rbio if the row is free. It does not wait: the owner of the row hands it on.
func (r *rbio) begin(t *sched.Task) {
	if r.lockStripe(t) {
		r.run(t)
	}
}

func (r *rbio) bucket() *stripeBucket {
	return &r.c.stripes.buckets[r.start()/format.StripeLen%stripeBuckets]
}

// lockStripe gives the rbio the row and reports true, or lets it wait. Models lock_stripe_add().
// Difference: a write joins the last write that waits, never the one that owns the row.
func (r *rbio) lockStripe(t *sched.Task) bool {
	if r.c.stripes.unlocked.Load() {
		return true
	}
	b := r.bucket()
	b.mu.Lock(t)
	defer b.mu.Unlock(t)
	for _, o := range b.owners {
		if o.start() != r.start() {
			continue
		}
		if k := len(o.waiting) - 1; k >= 0 && r.recover == nil && o.waiting[k].recover == nil {
			o.waiting[k].parts = append(o.waiting[k].parts, r.parts...)
		} else {
			o.waiting = append(o.waiting, r)
		}
		return false
	}
	b.owners = append(b.owners, r)
	return true
}

// unlockStripe gives the row, if the rbio owns it, to the one that has waited longest. Models
// unlock_stripe().
func (r *rbio) unlockStripe(t *sched.Task) {
	var next *rbio
	b := r.bucket()
	b.mu.Lock(t)
	for i, o := range b.owners {
		if o != r {
			continue
		}
		if len(r.waiting) > 0 {
			next = r.waiting[0]
			next.waiting, r.waiting = r.waiting[1:], nil
			b.owners[i] = next
		} else {
			last := len(b.owners) - 1
			b.owners[i], b.owners[last] = b.owners[last], nil
			b.owners = b.owners[:last]
		}
		break
	}
	b.mu.Unlock(t)
	if next != nil {
		t.Go("rmw", next.run)
	}
}

// run does what the rbio is for. It may sleep, as a submit may. Models rmw_rbio().
func (r *rbio) run(t *sched.Task) {
	if r.recover != nil {
		r.recover(t)
		return
	}
	r.gather()
	r.left.Store(1)
	for k, n := range r.new {
		for _, x := range (r.all &^ n).runs() {
			r.add(blockdev.OpRead, k, x)
		}
	}
	if len(r.io) == 0 {
		r.write(t)
		return
	}
	r.submit(t, readEnd)
}

// gather copies the bytes of the bios to their places in the row.
func (r *rbio) gather() {
	n := len(r.c.devs)
	r.new = make([]columns, r.c.profile.DataStripes(n))
	for _, p := range r.parts {
		end := p.from + uint64(p.bio.Len())
		for at := p.from; at < end; at += format.SectorSize {
			r.new[at/format.StripeLen] |= 1 << (at % format.StripeLen / format.SectorSize)
		}
	}
	for _, c := range r.new {
		r.all |= c
	}
	lo, hi := bits.TrailingZeros16(uint16(r.all)), bits.Len16(uint16(r.all))
	size := (hi - lo) * format.SectorSize
	memory := make([]byte, n*size)
	r.wrote = make([][]byte, n)
	for i := range r.wrote {
		r.wrote[i] = memory[i*size : (i+1)*size]
	}
	for _, p := range r.parts {
		at := p.from
		for _, q := range p.bio.Vecs {
			for len(q) > 0 {
				in := int(at % format.StripeLen)
				m := copy(r.wrote[at/format.StripeLen][in-lo*format.SectorSize:], q[:min(len(q), format.StripeLen-in)])
				q, at = q[m:], at+uint64(m)
			}
		}
	}
}

// unit is the bytes of sectors of unit i of the row: data, then P, then Q.
func (r *rbio) unit(i int, x run) []byte {
	lo := bits.TrailingZeros16(uint16(r.all))
	return r.wrote[i][(x.lo-lo)*format.SectorSize : (x.hi-lo)*format.SectorSize]
}

// place is the device of unit i of the row, and where the sectors lie on it.
func (r *rbio) place(i int, x run) (*Device, int64) {
	s := format.RowStripe(len(r.c.devs), r.row, i)
	return r.c.devs[s], int64(r.c.Chunk.Stripes[s].Offset + r.row*format.StripeLen + uint64(x.lo)*format.SectorSize)
}

func (r *rbio) add(op blockdev.Op, i int, x run) {
	q := &rowIO{unit: i, run: x}
	_, off := r.place(i, x)
	q.Bio = blockdev.Bio{Op: op, Off: off, Vecs: [][]byte{r.unit(i, x)}, Private: r}
	r.io = append(r.io, q)
}

// submit starts the bios of io. End is called after each, and once more at the end.
func (r *rbio) submit(t *sched.Task, end func(t *sched.Task, b *blockdev.Bio)) {
	r.left.Store(int32(len(r.io)))
	// The end of the last one may give io a new list.
	for _, q := range r.io {
		q.EndIO = end
		d, _ := r.place(q.unit, q.run)
		start(t, d, &q.Bio)
	}
}

// readEnd is the end of a read. The parity is made and written by a task, since a submit may sleep.
func readEnd(t *sched.Task, b *blockdev.Bio) {
	if r := b.Private.(*rbio); r.left.Add(-1) == 0 {
		t.Go("rmw", r.rebuild)
	}
}

// rebuild makes what could not be read from the old parity, and goes on with the write.
//
// Models recover_sectors(), by rmw_read_wait_recover(). Differences: the kernel reads the whole row
// and compares the data with its checksums, so that a sector that is bad unknown to the device does
// not get into the parity; here only errors of the device count.
func (r *rbio) rebuild(t *sched.Task) {
	for _, q := range r.io {
		if q.Err == nil {
			continue
		}
		at := format.Piece{Row: r.row, Data: q.unit, Off: r.row*format.StripeLen + uint64(q.run.lo)*format.SectorSize}
		if err := r.c.rebuild(t, q.Vecs, at, 1); err != nil {
			r.end(t, err)
			return
		}
	}
	r.write(t)
}

// write makes the parity and writes it with the data that is new. What lies on a missing device is
// left out: the rest of the row makes it. Models generate_pq_vertical() and
// rmw_assemble_write_bios().
func (r *rbio) write(t *sched.Task) {
	n, data := len(r.c.devs), len(r.new)
	missing := 0
	for _, d := range r.c.devs {
		if d.missing {
			missing++
		}
	}
	if missing > r.c.profile.Parity {
		r.end(t, fmt.Errorf("%d of %d stripes are missing, %s bears %d: %w", missing, n, r.c.profile.Name, r.c.profile.Parity, errno.EIO))
		return
	}
	r.io = nil
	put := func(i int, x run) {
		if d, _ := r.place(i, x); !d.missing {
			r.add(blockdev.OpWrite, i, x)
		}
	}
	for k, c := range r.new {
		for _, x := range c.runs() {
			put(k, x)
		}
	}
	units := make([][]byte, n)
	for _, x := range r.all.runs() {
		for i := range units {
			units[i] = r.unit(i, x)
		}
		format.FillParity(units[:data], units[data:])
		for i := data; i < n; i++ {
			put(i, x)
		}
	}
	r.submit(t, writeEnd)
}

// writeEnd is the end of a write.
func writeEnd(t *sched.Task, b *blockdev.Bio) {
	r := b.Private.(*rbio)
	if r.left.Add(-1) > 0 {
		return
	}
	var err error
	for _, q := range r.io {
		if q.Err != nil && err == nil {
			err = q.Err
		}
	}
	r.end(t, err)
}

// end lets the row go and ends the bios. Models rbio_orig_end_io().
func (r *rbio) end(t *sched.Task, err error) {
	r.unlockStripe(t)
	for _, p := range r.parts {
		p.bio.Err = nil
		if err != nil {
			p.bio.Err = fmt.Errorf("%v logical %d len %d: %w", p.bio.Op, p.bio.Off, p.bio.Len(), err)
		}
		p.bio.EndIO(t, p.bio)
	}
}

// recovery reads a piece from the other stripes of its row, under the stripe lock: a write of the
// row would be seen in half.
type recovery struct {
	c      *ChunkInfo
	at     format.Piece
	mirror int
}

// Submit starts the read; b ends when the row was free and is read.
func (q *recovery) Submit(t *sched.Task, b *blockdev.Bio) {
	r := &rbio{c: q.c, row: q.at.Row}
	r.recover = func(t *sched.Task) {
		b.Err = q.c.rebuild(t, b.Vecs, q.at, q.mirror)
		r.unlockStripe(t)
		b.EndIO(t, b)
	}
	r.begin(t)
}

// recover makes the bytes of a piece as rebuild does, and waits for writes of its row. Models
// raid56_parity_recover().
func (c *ChunkInfo) recover(t *sched.Task, vecs [][]byte, at format.Piece, mirror int) error {
	return blockdev.Do(t, &recovery{c, at, mirror}, &blockdev.Bio{Op: blockdev.OpRead, Vecs: vecs})
}
