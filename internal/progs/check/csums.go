package check

import (
	"sort"
	"sync"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Checksums: the checksum tree is read in order (loadCsums), each piece of data that it covers is
// verified on every mirror in the background (dataCheck), and what is wrong is put down to the
// files that have it (blameData), which the tree walk of tree.go found.

// dataWorkers verify data: the work is a checksum at memory speed, and two keep a small machine
// busy.
const dataWorkers = 2

// dataStep is how much one job of a worker covers, in bytes.
const dataStep = 1 << 20

// dataJob is a range of data in one chunk, with its checksums.
type dataJob struct {
	logical uint64
	sums    []byte
}

// badData is a range of sectors whose checksum is wrong on one mirror.
type badData struct {
	logical, length uint64
	mirror          int
	place           stripe
	have, want      string // of the first sector
	readErr         string
}

// dataCheck is the verification of data, in the background.
type dataCheck struct {
	c     *checker
	jobs  chan dataJob
	tasks []*sched.Task
	total atomic.Uint64
	done  atomic.Uint64
	mu    sync.Mutex
	bad   []*badData
	// alone is set in a runtime that runs one task at a time: a worker that waits for a channel
	// would stop the clock for all, so the task that reads the tree verifies. here is its buffer.
	alone bool
	here  []byte
}

func (c *checker) startData() *dataCheck {
	d := &dataCheck{c: c, jobs: make(chan dataJob, 64)}
	if c.noData {
		return d
	}
	if c.t.Runtime() != nil {
		d.alone = true
		return d
	}
	for range dataWorkers {
		d.tasks = append(d.tasks, c.t.Go("check-data", func(t *sched.Task) {
			var buf []byte
			for j := range d.jobs {
				buf = d.verify(t, j, buf)
			}
		}))
	}
	return d
}

// wait ends the verification.
func (d *dataCheck) wait() {
	close(d.jobs)
	for _, t := range d.tasks {
		d.c.t.Join(t)
	}
	d.c.stats.DataBytes += d.done.Load()
}

// verify checks one range on every mirror. It returns buf, which it makes larger if the range needs
// that: a small image needs little.
func (d *dataCheck) verify(t *sched.Task, j dataJob, buf []byte) []byte {
	c := d.c
	sector, csum, size := int(c.sb.SectorSize), c.sb.CsumType, c.sb.CsumType.Size()
	n := len(j.sums) / size * sector
	if n > len(buf) {
		buf = make([]byte, min(dataStep, max(n, 2*len(buf))))
	}
	places, _ := c.chunkAt(j.logical).places(j.logical)
	for m, place := range places {
		p := buf[:n]
		if place.dev == nil {
			continue // chunk.item
		}
		if err := blockdev.Read(t, place.dev, p, int64(place.off)); err != nil {
			d.addBad(badData{logical: j.logical, length: uint64(n), mirror: m, place: place, readErr: err.Error()})
			continue
		}
		var run *badData
		for i := 0; i < n; i += sector {
			want := j.sums[i/sector*size:]
			if csum.Match(want, p[i:i+sector]) {
				run = nil
				continue
			}
			if run == nil {
				have := csum.Sum(p[i : i+sector])
				run = d.addBad(badData{logical: j.logical + uint64(i), mirror: m, place: stripe{place.dev, place.off + uint64(i)}, have: csum.Text(have[:]), want: csum.Text(want)})
			}
			run.length += uint64(sector)
		}
	}
	d.done.Add(uint64(n))
	c.stepData(d.done.Load(), d.total.Load())
	return buf
}

// addBad keeps b, which its worker alone may lengthen.
func (d *dataCheck) addBad(b badData) *badData {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.bad) < findingsMax {
		d.bad = append(d.bad, &b)
	}
	return &b
}

// loadCsums reads the csum tree, and hands what it lists to the data workers.
func (c *checker) loadCsums(d *dataCheck) {
	r, ok := c.roots[format.CSUM_TREE_OBJECTID]
	if !ok {
		return
	}
	x := 0 // first extent that may hold the next csum
	c.csumsWhole = c.walkTree(format.CSUM_TREE_OBJECTID, r.item.Bytenr, r.item.Generation, r.item.Level, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			if !c.sliced {
				x = c.csumItem(d, n, i, x, span{0, ^uint64(0)})
			}
		}
	})
}

// csumItem takes the part of an item of the checksum tree that is in the range. x is the first
// extent that may reach into it; it returns the first that may reach into the next item.
func (c *checker) csumItem(d *dataCheck, n format.Node, i, x int, in span) int {
	sector, size := uint64(c.sb.SectorSize), uint64(c.sb.CsumType.Size())
	k := n.Key(i)
	if k.Type != format.EXTENT_CSUM_KEY {
		return x
	}
	b := n.Item(i)
	s := span{k.Offset, k.Offset + uint64(len(b))/size*sector}
	if s.end <= in.start || s.start >= in.end {
		return x
	}
	where := on(AtTree, format.CSUM_TREE_OBJECTID).with(AtBlock, n.Bytenr()).with(AtSlot, uint64(i))
	if s.start >= in.start {
		if c.csumEnd > s.start {
			c.find("csum.extent", where, words("csums from %d on", s.start), words("at least %d, the end of those before", c.csumEnd))
			return x
		}
		c.csumEnd = s.end
	} else { // the start of it is in the range before
		b = b[(in.start-s.start)/sector*size:]
		s.start = in.start
	}
	if s.end > in.end {
		b = b[:(in.end-s.start)/sector*size]
		s.end = in.end
	}
	if l := len(c.csums); l > 0 && c.csums[l-1].end == s.start {
		c.csums[l-1].end = s.end
	} else {
		c.csums = append(c.csums, s)
	}
	x = c.straysOf(s, x, where)
	d.queue(s.start, b)
	return x
}

// straysOf notes the parts of s, the range of a csum item, that lie in no data extent. x is the
// first extent that may reach into s; it returns the first that may reach into the next item.
func (c *checker) straysOf(s span, x int, where Place) int {
	for at := s.start; at < s.end; {
		for x < len(c.extents) && c.extents[x].start+c.extents[x].length <= at {
			x++
		}
		data, end := false, s.end
		if x < len(c.extents) {
			if e := &c.extents[x]; e.start <= at {
				data, end = !e.tree, min(end, e.start+e.length)
			} else {
				end = min(end, e.start)
			}
		}
		if !data && c.extentsWhole && len(c.stray) < findingsMax {
			c.stray = append(c.stray, strayCsums{span{at, end}, where})
		}
		at = end
	}
	return x
}

// queue cuts a csum item into jobs that each lie in one chunk, and in one place of each copy.
func (d *dataCheck) queue(logical uint64, sums []byte) {
	if len(d.tasks) == 0 && !d.alone {
		return
	}
	c := d.c
	sector, size := uint64(c.sb.SectorSize), uint64(c.sb.CsumType.Size())
	sums = append([]byte(nil), sums...)
	d.total.Add(uint64(len(sums)) / size * sector)
	for len(sums) > 0 {
		ch := c.chunkAt(logical)
		if ch == nil {
			return // csum.extent says so
		}
		_, run := ch.places(logical)
		n := min(uint64(len(sums))/size*sector, dataStep, run)
		l := n / sector * size
		if l == 0 {
			return
		}
		if d.alone {
			d.here = d.verify(c.t, dataJob{logical, sums[:l]}, d.here)
		} else {
			d.jobs <- dataJob{logical, sums[:l]}
		}
		logical, sums = logical+n, sums[l:]
	}
}

// uncovered is the first byte of [start, end) that lies in none of the lists, each of them
// ascending and without overlaps.
func uncovered(start, end uint64, lists ...[]span) (uint64, bool) {
	for at := start; at < end; {
		from := at
		for _, l := range lists {
			i := sort.Search(len(l), func(i int) bool { return l[i].end > at })
			if i < len(l) && l[i].start <= at {
				at = l[i].end
			}
		}
		if at == from {
			return at, true
		}
	}
	return 0, false
}

// blameData turns bad data into findings that name a file.
func (c *checker) blameData(d *dataCheck) {
	if len(d.bad) == 0 {
		return
	}
	sort.Slice(d.bad, func(i, j int) bool {
		if d.bad[i].logical != d.bad[j].logical {
			return d.bad[i].logical < d.bad[j].logical
		}
		return d.bad[i].mirror < d.bad[j].mirror
	})
	sort.Slice(c.dataPtrs, func(i, j int) bool { return c.dataPtrs[i].bytenr < c.dataPtrs[j].bytenr })
	copies := map[uint64]int{} // that are bad
	for _, b := range d.bad {
		copies[b.logical]++
	}
	for _, b := range d.bad {
		where := on(AtLogical, b.logical).with(AtLength, b.length).with(AtMirror, uint64(b.mirror)).joined(c.at(b.place))
		i := sort.Search(len(c.dataPtrs), func(i int) bool { return c.dataPtrs[i].bytenr > b.logical }) - 1
		if i >= 0 && b.logical-c.dataPtrs[i].bytenr < c.dataPtrs[i].length {
			p := c.dataPtrs[i]
			where = where.joined(PlaceOf(p.owner, p.ino)).with(AtFileOffset, p.start+b.logical-p.bytenr)
		}
		if places, _ := c.chunkAt(b.logical).places(b.logical); copies[b.logical] < len(places) {
			c.spared[where] = true
		}
		if b.readErr != "" {
			c.find("data.read", where, Words(b.readErr), nil)
			continue
		}
		c.find("data.csum", where, Words(b.have), Words(b.want))
	}
}
