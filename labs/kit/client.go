package kit

import (
	"fmt"

	"btrlab/internal/sched"
)

// ClientSide is the measured file's side of a Client. Times are in nanoseconds of the clock.
type ClientSide interface {
	Due(i int) int64
	Now(t *sched.Task) int64
	SleepUntil(t *sched.Task, at int64)
	Write(t *sched.Task, i int)
}

// Client is one source of requests: each is due at a time of its own, whether the one before has
// ended or not, as with users who do not know of each other. Only one is carried out at a time: one
// that is due earlier waits, and its user with it.
type Client struct {
	side             ClientSide
	requests, warmup int
	next             int // the request that is written next
}

// Requests is how many requests there are.
func (c *Client) Requests() int { return c.requests }

// Warmup is how many of them, from the first on, only bring the file into memory. They do not
// count.
func (c *Client) Warmup() int { return c.warmup }

// Due is when request i is due, in nanoseconds of the clock.
func (c *Client) Due(i int) int64 { return c.side.Due(i) }

func (c *Client) use(t *Task, call string) {
	t.need("Client", call, "Measure was")
}

// Now is the clock, in nanoseconds.
func (c *Client) Now(t *Task) int64 {
	c.use(t, "Now")
	return c.side.Now(t.t)
}

// SleepUntil sleeps until the clock has come to at; if that is past, it returns at once.
func (c *Client) SleepUntil(t *Task, at int64) {
	c.use(t, "SleepUntil")
	c.side.SleepUntil(t.t, at)
}

// Write carries request i out, and returns when the write has ended. Requests are written in their
// order, each once and not before it is due.
func (c *Client) Write(t *Task, i int) {
	switch c.use(t, "Write"); {
	case i != c.next:
		panic(fmt.Sprintf("kit.Client.Write of request %d, want %d: each once, in order", i, c.next))
	case i >= c.requests:
		panic(fmt.Sprintf("kit.Client.Write of request %d, and there are %d", i, c.requests))
	case c.side.Now(t.t) < c.side.Due(i):
		panic(fmt.Sprintf("kit.Client.Write of request %d before it is due", i))
	}
	c.next++
	c.side.Write(t.t, i)
}

// RunClient calls measure, and sees to it that all requests are written.
func RunClient(measure func(t *Task, c *Client) []int64, t *sched.Task, side ClientSide, requests, warmup int) []int64 {
	c := &Client{side: side, requests: requests, warmup: warmup}
	l := measure(On(t), c)
	if c.next != requests {
		panic(fmt.Sprintf("Measure has returned after %d of %d requests", c.next, requests))
	}
	return l
}

// Summary is what a measurement comes to. Latencies are in nanoseconds.
type Summary struct {
	Ops       int
	PerSecond float64
	Mean      float64
	P50, P99  int64 // the smallest latency that at least 50 and 99 per cent of all do not exceed
}

// Profile is a run of writers of one file, and what the lock profile has of it for i_rwsem. Each
// writer waits a while, writes, and begins anew.
type Profile struct {
	Writers int
	Ops     int   // of all writers
	Elapsed int64 // nanoseconds from the first to the last
	Waits   int   // times that a writer waited for i_rwsem
	Waited  int64 // nanoseconds of all these waits
}

// Prediction is what a number of writers comes to.
type Prediction struct {
	PerSecond float64 // writes of all writers
	Wait      float64 // nanoseconds that a write waits for i_rwsem, on average
	Waiting   float64 // writers that wait at one time, on average
}
