package direct

import (
	"errors"

	"btrlab/internal/data/ordered"
	"btrlab/internal/data/place"
	"btrlab/internal/errno"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

// labExtent is an extent of a NOWAIT write whose steps another function puts into order:
// iopath.Env.NowaitExtent.
type labExtent struct {
	w          *write
	start, end uint64
	x          place.Extent
	oe         *ordered.Extent // once it is started
	why        kiocb.Again     // the last step that could not go on
}

var _ iopath.NowaitSteps = (*labExtent)(nil)

// startOther is extent with the steps in another's hands. It submits what they have started.
func (w *write) startOther(t *sched.Task, start, end uint64) error {
	other := *w // which leaves the stack, as w does not
	e := labExtent{w: &other, start: start, end: end}
	err := w.env.NowaitExtent(t, &e)
	*w = other
	switch {
	case errors.Is(err, errno.EAGAIN) && e.why != 0: // where it was, which the lab does not say
		return e.why
	case errors.Is(err, errno.EAGAIN):
		return kiocb.AgainExtent
	case err != nil:
		return err
	}
	n, err := w.pin(t, e.oe)
	if n > 0 {
		w.io.submitWrite(t, e.oe, w.src[w.done:w.done+n])
		w.pos, w.done = w.pos+uint64(n), w.done+n
	}
	return err
}

// note keeps err if it says where a wait would have been.
func (e *labExtent) note(err error) error {
	errors.As(err, &e.why)
	return err
}

func (e *labExtent) TryRange(t *sched.Task) bool {
	return e.note(e.w.lockExtent(t, e.start, e.end)) == nil
}

func (e *labExtent) LockRange(t *sched.Task) {
	mayBlock(t, "lock_extent")
	lockRange(t, e.w.ip, &e.w.pl, e.start, e.end)
}

func (e *labExtent) UnlockRange(t *sched.Task) { e.w.unlockExtent(t, e.start, e.end) }

func (e *labExtent) Reserve(t *sched.Task, flush bool) error {
	w, mode := e.w, spaceinfo.NoFlush
	if flush {
		mayBlock(t, "reserve")
		mode = spaceinfo.FlushAll
	}
	if !w.rsv.NoSnapshot(t, w.ip) {
		return e.note(kiocb.AgainSnapshot)
	}
	w.rsv.Nocow(e.start, e.end)
	err := w.rsv.ReserveMetadataNowait(t, w.env.Read.Place, w.ip, mode)
	if err != nil {
		w.rsv.Release(t, w.ip)
		e.why = kiocb.AgainMetadata
		if errors.Is(err, errno.EDQUOT) {
			e.why = kiocb.AgainQuota
		}
	}
	return err
}

func (e *labExtent) Release(t *sched.Task) { e.w.rsv.Release(t, e.w.ip) }

func (e *labExtent) Place(t *sched.Task) (err error) {
	e.x, err = e.w.placeNowait(t, e.start, e.end)
	return e.note(err)
}

func (e *labExtent) Start(t *sched.Task) { e.oe = e.w.order(t, e.x) }
