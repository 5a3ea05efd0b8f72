package dm

import (
	"math"

	"btrlab/internal/blockdev"
)

// link is a rate that the requests in transfer share in equal parts, so that each newcomer makes
// all others slower: processor sharing. It keeps what each request in transfer has got since the
// link began; a request ends when that has grown by its bytes, and so the order of ends is known
// when they join, though their times are not.
type link struct {
	rate   float64 // bytes a second, of all
	got    float64 // bytes that each has got
	at     int64   // when got was counted
	moving int     // requests with bytes
	heap   requests
}

// part is a byte in request.due, as long as the request is in the link.
const part = 1 << 10

// join puts r in, at the time of its due. A flush ends with the last transfer that is there.
func (l *link) join(r *request) {
	now := r.due
	l.count(now)
	if r.inner.Op == blockdev.OpFlush {
		r.due = int64(l.got * part)
		for _, o := range l.heap {
			r.due = max(r.due, o.due)
		}
	} else {
		r.due = int64((l.got + float64(r.inner.Len())) * part)
		l.moving++
	}
	l.heap.push(r)
}

// count brings got up to now.
func (l *link) count(now int64) {
	if l.moving > 0 {
		l.got += float64(now-l.at) * l.rate / float64(l.moving) / 1e9
	}
	l.at = now
}

// next is when the first request ends; the largest number when there is none.
func (l *link) next() int64 {
	if len(l.heap) == 0 {
		return math.MaxInt64
	}
	left := max(float64(l.heap[0].due)/part-l.got, 0)
	return l.at + int64(math.Ceil(left*float64(l.moving)/l.rate*1e9))
}

// take takes the first request out, at its end.
func (l *link) take() *request {
	l.count(l.next())
	r := l.heap.pop()
	if r.inner.Op != blockdev.OpFlush {
		l.moving--
	}
	return r
}

// requests is a heap by due, then seq.
type requests []*request

func (h *requests) push(r *request) {
	*h = append(*h, r)
	list := *h
	i := len(list) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !list[i].before(list[up]) {
			break
		}
		list[i], list[up] = list[up], list[i]
		i = up
	}
}

func (h *requests) pop() *request {
	list := *h
	r := list[0]
	n := len(list) - 1
	list[0], list[n] = list[n], nil
	list = list[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && list[c+1].before(list[c]) {
			c++
		}
		if !list[c].before(list[i]) {
			break
		}
		list[i], list[c] = list[c], list[i]
		i = c
	}
	*h = list
	return r
}

func (r *request) before(o *request) bool {
	return r.due < o.due || r.due == o.due && r.seq < o.seq
}
