package shard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// ErrStopped is what an item returns that was stopped before its end. It is done anew when the
// shard goes on.
var ErrStopped = errors.New("stopped")

// Doing says how the items of a shard are done.
type Doing struct {
	// Item does item n. It is called by Jobs tasks at once; its value is written as JSON.
	Item func(n int) (any, error)
	Jobs int // items at a time, at least 1
	// Stop, if set, is asked before each item; once it returns true no other begins.
	Stop func() bool
	// Progress, if set, is called with the items that are done of all of the shard, first with
	// those that the file had.
	Progress func(done, all int)
}

// Done is how far a shard is.
type Done struct {
	Had   int // items that the file had already
	Items int // items that it has now
	All   int // items of the shard
	Whole bool
}

// Do does the items of a part of w that are not in the file name yet. Without the file it begins
// with the first. When it was stopped, Done is not whole and the error is nil.
func Do(name string, w Work, p Part, d Doing) (Done, error) {
	// it is read first: a device may have no end
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		return Done{}, &FileError{name, errors.New("no regular file, which a shard's is")}
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return Done{}, err
	}
	done, err := resume(f, w, p, d)
	var bad fileError
	if errors.As(err, &bad) {
		err = &FileError{name, bad.err}
	}
	return done, errors.Join(err, f.Close())
}

// FileError is an error about what stands in a file.
type FileError struct {
	Name string
	Err  error
}

func (e *FileError) Error() string { return e.Name + ": " + e.Err.Error() }

func (e *FileError) Unwrap() error { return e.Err }

// fileError is one whose file is not known yet.
type fileError struct{ err error }

func (e fileError) Error() string { return e.err.Error() }

// resume goes on after the last whole line of f.
func resume(f *os.File, w Work, p Part, d Doing) (Done, error) {
	x, err := parse(f)
	if err != nil {
		return Done{}, fileError{err}
	}
	if x.size == 0 { // also one whose head was cut
		x = &file{}
	} else if err := belongs(&x.head, w, p); err != nil {
		return Done{}, fileError{err}
	}
	done := Done{Had: len(x.results), Items: len(x.results), All: p.count(w.Items), Whole: x.whole}
	if x.whole {
		return done, nil
	}
	if err := f.Truncate(x.size); err != nil {
		return done, err
	}
	if _, err := f.Seek(x.size, io.SeekStart); err != nil {
		return done, err
	}
	if err := do(f, x, w, p, d, &done); err != nil || !done.Whole {
		return done, err
	}
	return done, f.Sync()
}

// belongs is an error if a file of the work h is not the one of part p of w.
func belongs(h *head, w Work, p Part) error {
	if h.Shard != p.N || h.Shards != p.Of {
		return fmt.Errorf("bad shard, have %d/%d want %s", h.Shard, h.Shards, p)
	}
	if bad := w.differs(&h.Work); bad != "" {
		return errors.New(bad)
	}
	return nil
}

// Write does a part of w and writes its file to out. It cannot go on where it was stopped.
func Write(out io.Writer, w Work, p Part, d Doing) (Done, error) {
	done := Done{All: p.count(w.Items)}
	return done, do(out, &file{}, w, p, d, &done)
}

// do writes what x has not. Items are done by several tasks and written in their order, so that a
// file has no holes; what is done out of order when the shard is stopped is lost.
func do(out io.Writer, x *file, w Work, p Part, d Doing, done *Done) error {
	put := func(text string, err error) error {
		if err == nil {
			_, err = io.WriteString(out, text)
		}
		return err
	}
	if x.size == 0 {
		if err := put(x.chain.first(head{format, p.N, p.Of, w})); err != nil {
			return err
		}
	}
	if d.Progress == nil {
		d.Progress = func(int, int) {}
	}
	d.Progress(done.Items, done.All)
	q := &queue{d: d, part: p, next: done.Items, all: done.All, outcomes: map[int]outcome{}}
	q.arrived.L = &q.mu
	err := q.run(func(r Result) error {
		if err := put(x.chain.item(r, done.Items)); err != nil {
			return err
		}
		done.Items++
		d.Progress(done.Items, done.All)
		return nil
	})
	if errors.Is(err, ErrStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	done.Whole = true
	return put(x.chain.last(done.Items))
}

type outcome struct {
	value []byte
	err   error
}

// queue gives items to tasks and takes their outcomes in order.
type queue struct {
	d         Doing
	part      Part
	mu        sync.Mutex // protects what follows
	arrived   sync.Cond
	next, all int // the next item to begin, counted within the shard
	outcomes  map[int]outcome
	over      bool
}

// run calls took with the results in order, until one fails.
func (q *queue) run(took func(Result) error) (err error) {
	first := q.next
	var tasks sync.WaitGroup
	for range q.d.Jobs {
		tasks.Go(q.work)
	}
	for i := first; i < q.all && err == nil; i++ {
		o := q.await(i)
		if err = o.err; err == nil {
			err = took(Result{q.part.item(i), o.value})
		}
	}
	q.mu.Lock()
	q.over = true
	q.mu.Unlock()
	tasks.Wait()
	return err
}

// work does one item after the other. After one that failed no other begins.
func (q *queue) work() {
	for {
		q.mu.Lock()
		i := q.next
		if q.over || i == q.all {
			q.mu.Unlock()
			return
		}
		q.next++
		q.mu.Unlock()
		o := q.do(q.part.item(i))
		q.mu.Lock()
		q.outcomes[i] = o
		q.over = q.over || o.err != nil
		q.arrived.Broadcast()
		q.mu.Unlock()
	}
}

func (q *queue) do(item int) (o outcome) {
	if q.d.Stop != nil && q.d.Stop() {
		return outcome{err: ErrStopped}
	}
	v, err := q.d.Item(item)
	if err != nil {
		return outcome{err: err}
	}
	o.value, o.err = marshal(v)
	return o
}

// await is the outcome of the i-th item. One that did not begin because another has failed is as
// good as stopped: those before it are written.
func (q *queue) await(i int) outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if o, ok := q.outcomes[i]; ok {
			delete(q.outcomes, i)
			return o
		}
		if q.over && i >= q.next {
			return outcome{err: ErrStopped}
		}
		q.arrived.Wait()
	}
}
