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

// dataRules are about checksums and data.
var dataRules = []Rule{
	{"csum.extent", "checksums exist for allocated data only (9)", "the next data there may seem damaged"},
	{"csum.missing", "data that needs checksums has them (9)", "a part of the file cannot be read"},
	{"data.read", "data can be read", ""},
	{"data.csum", "data matches its checksum, on every copy (9)", ""},
}

// dataWorkers verify data: the work is a checksum at memory speed, and two keep a small machine
// busy.
const dataWorkers = 2

// dataStep is how much one job of a worker covers, in bytes.
const dataStep = 1 << 20

// dataJob is a range of data in one chunk, with its checksums; nil if it has none.
type dataJob struct {
	logical, length uint64
	sums            []byte
}

// badData is a range of sectors that are bad on one mirror: all of them have a wrong checksum, or
// the device reads none.
type badData struct {
	logical, length uint64
	mirror          int
	place           Stripe
	have, want      string // of the first sector
	readErr         string // of the first sector
	sums            []byte
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
	if c.Task.Runtime() != nil {
		d.alone = true
		return d
	}
	for range dataWorkers {
		d.tasks = append(d.tasks, c.Task.Go("check-data", func(t *sched.Task) {
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
		d.c.Task.Join(t)
	}
	d.c.stats.DataBytes += d.done.Load()
}

// verify checks one range on every mirror. It returns buf, which it makes larger if the range needs
// that: a small image needs little.
func (d *dataCheck) verify(t *sched.Task, j dataJob, buf []byte) []byte {
	c := d.c
	n := int(j.length)
	if n > len(buf) {
		buf = make([]byte, min(dataStep, max(n, 2*len(buf))))
	}
	places, _ := c.ChunkAt(j.logical).Places(j.logical)
	for m, place := range places {
		if place.Dev == nil {
			continue // chunk.item
		}
		d.verifyCopy(t, j, buf[:n], m, place)
		c.scanned(place.Dev, func(s *Scanned) *uint64 { return &s.Data }, j.length)
		if j.sums == nil {
			c.scanned(place.Dev, func(s *Scanned) *uint64 { return &s.NoCsum }, j.length)
		}
	}
	d.done.Add(uint64(n))
	c.stepData(d.done.Load(), d.total.Load())
	return buf
}

// verifyCopy checks a range on mirror m: sector by sector, if the device does not read all of it.
func (d *dataCheck) verifyCopy(t *sched.Task, j dataJob, p []byte, m int, place Stripe) {
	sector, csum, size := int(d.c.Super.SectorSize), d.c.Super.CsumType, d.c.Super.CsumType.Size()
	whole := blockdev.Read(t, place.Dev, p, int64(place.Off)) == nil
	var run *badData
	for i := 0; i < len(p); i += sector {
		b := badData{logical: j.logical + uint64(i), mirror: m, place: Stripe{place.Dev, place.Off + uint64(i)}}
		var sum []byte
		if j.sums != nil {
			sum = j.sums[i/sector*size:][:size]
		}
		if !whole {
			if err := blockdev.Read(t, place.Dev, p[i:i+sector], int64(b.place.Off)); err != nil {
				b.readErr = err.Error()
			}
		}
		switch {
		case b.readErr != "":
		case sum == nil || csum.Match(sum, p[i:i+sector]):
			run = nil
			continue
		default:
			have := csum.Sum(p[i : i+sector])
			b.have, b.want = csum.Text(have[:]), csum.Text(sum)
		}
		if run == nil || (run.readErr == "") != (b.readErr == "") {
			run = d.addBad(b)
		}
		run.length += uint64(sector)
		run.sums = append(run.sums, sum...)
	}
}

// addBad keeps b, which its worker alone may lengthen.
func (d *dataCheck) addBad(b badData) *badData {
	d.mu.Lock()
	defer d.mu.Unlock()
	if most := d.c.mostBad(); len(d.bad) < most {
		d.bad = append(d.bad, &b)
	}
	return &b
}

// loadCsums reads the csum tree, and hands what it lists to the data workers.
func (c *checker) loadCsums(d *dataCheck) {
	r, ok := c.Roots[format.CSUM_TREE_OBJECTID]
	if !ok {
		return
	}
	x := 0 // first extent that may hold the next csum
	c.CsumsWhole = c.walkTree(format.CSUM_TREE_OBJECTID, r.Item.Bytenr, r.Item.Generation, r.Item.Level, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			if !c.sliced {
				x = c.csumItem(d, n, i, x, Span{0, ^uint64(0)})
			}
		}
	})
}

// csumItem takes the part of an item of the checksum tree that is in the range. x is the first
// extent that may reach into it; it returns the first that may reach into the next item.
func (c *checker) csumItem(d *dataCheck, n format.Node, i, x int, in Span) int {
	sector, size := uint64(c.Super.SectorSize), uint64(c.Super.CsumType.Size())
	k := n.Key(i)
	if k.Type != format.EXTENT_CSUM_KEY {
		return x
	}
	b := n.Item(i)
	s := Span{k.Offset, k.Offset + uint64(len(b))/size*sector}
	if s.End <= in.Start || s.Start >= in.End {
		return x
	}
	where := on(AtTree, format.CSUM_TREE_OBJECTID).with(AtBlock, n.Bytenr()).with(AtSlot, uint64(i))
	if s.Start >= in.Start {
		if c.csumEnd > s.Start {
			c.find("csum.extent", where, words("csums from %d on", s.Start), words("at least %d, the end of those before", c.csumEnd))
			return x
		}
		c.csumEnd = s.End
	} else { // the start of it is in the range before
		b = b[(in.Start-s.Start)/sector*size:]
		s.Start = in.Start
	}
	if s.End > in.End {
		b = b[:(in.End-s.Start)/sector*size]
		s.End = in.End
	}
	if l := len(c.csums); l > 0 && c.csums[l-1].End == s.Start {
		c.csums[l-1].End = s.End
	} else {
		c.csums = append(c.csums, s)
	}
	x = c.straysOf(s, x, where)
	d.queue(s.Start, b)
	return x
}

// straysOf notes the parts of s, the range of a csum item, that lie in no data extent. x is the
// first extent that may reach into s; it returns the first that may reach into the next item.
func (c *checker) straysOf(s Span, x int, where Place) int {
	for at := s.Start; at < s.End; {
		for x < len(c.Extents) && c.Extents[x].Start+c.Extents[x].Length <= at {
			x++
		}
		data, end := false, s.End
		if x < len(c.Extents) {
			if e := &c.Extents[x]; e.Start <= at {
				data, end = !e.tree, min(end, e.Start+e.Length)
			} else {
				end = min(end, e.Start)
			}
		}
		if !data && c.ExtentsWhole && len(c.stray) < findingsMax {
			c.stray = append(c.stray, strayCsums{Span{at, end}, where})
		}
		at = end
	}
	return x
}

// queue has the data of a csum item verified.
func (d *dataCheck) queue(logical uint64, sums []byte) {
	n := uint64(len(sums)) / uint64(d.c.Super.CsumType.Size()) * uint64(d.c.Super.SectorSize)
	d.cut(dataJob{logical, n, append([]byte(nil), sums...)})
}

// cut cuts a job into some that each lie in one chunk, and in one place of each copy.
func (d *dataCheck) cut(j dataJob) {
	if len(d.tasks) == 0 && !d.alone {
		return
	}
	c := d.c
	sector, size := uint64(c.Super.SectorSize), uint64(c.Super.CsumType.Size())
	d.total.Add(j.length)
	for j.length > 0 {
		ch := c.ChunkAt(j.logical)
		if ch == nil {
			return // csum.extent says so
		}
		_, run := ch.Places(j.logical)
		n := min(j.length, dataStep, run) / sector * sector
		if n == 0 {
			return
		}
		one := dataJob{j.logical, n, nil}
		if j.sums != nil {
			one.sums, j.sums = j.sums[:n/sector*size], j.sums[n/sector*size:]
		}
		if d.alone {
			d.here = d.verify(c.Task, one, d.here)
		} else {
			d.jobs <- one
		}
		j.logical, j.length = j.logical+n, j.length-n
	}
}

// uncovered is the first byte of [start, end) that lies in none of the lists, each of them
// ascending and without overlaps.
func uncovered(start, end uint64, lists ...[]Span) (uint64, bool) {
	for at := start; at < end; {
		from := at
		for _, l := range lists {
			i := sort.Search(len(l), func(i int) bool { return l[i].End > at })
			if i < len(l) && l[i].Start <= at {
				at = l[i].End
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
	sort.Slice(c.Data, func(i, j int) bool { return c.Data[i].Bytenr < c.Data[j].Bytenr })
	copies := map[uint64]int{} // that are bad
	for _, b := range d.bad {
		copies[b.logical]++
	}
	for _, b := range d.bad {
		where := on(AtLogical, b.logical).with(AtLength, b.length).with(AtMirror, uint64(b.mirror)).joined(c.at(b.place))
		i := sort.Search(len(c.Data), func(i int) bool { return c.Data[i].Bytenr > b.logical }) - 1
		if i >= 0 && b.logical-c.Data[i].Bytenr < c.Data[i].Length {
			p := c.Data[i]
			where = where.joined(PlaceOf(p.Owner, p.Ino)).with(AtFileOffset, p.Start+b.logical-p.Bytenr)
		}
		if places, _ := c.ChunkAt(b.logical).Places(b.logical); copies[b.logical] < len(places) {
			c.Spared[where] = true
		}
		c.addBadCopy(Bad{Logical: b.logical, Length: b.length, Mirror: b.mirror, At: b.place, Unread: b.readErr != "", Sums: b.sums, Where: where})
		if b.readErr != "" {
			c.find("data.read", where, Words(b.readErr), nil)
			continue
		}
		c.find("data.csum", where, Words(b.have), Words(b.want))
	}
}
