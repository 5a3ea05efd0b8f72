package kit

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// fileSide notes what is called. A write of it has two batches, a truncate of it cuts.
type fileSide struct {
	iopath.WriteSteps // what is not here is not called

	calls        []string
	batches      int
	start        uint64 // of the operation; the file has 100 bytes
	begin, batch error  // of Begin and of the second batch
	free         bool   // a try gets what it wants
}

func (s *fileSide) note(call string)          { s.calls = append(s.calls, call) }
func (s *fileSide) Share(*sched.Task)         { s.note("Share") }
func (s *fileSide) Alone(*sched.Task)         { s.note("Alone") }
func (s *fileSide) TryShare(*sched.Task) bool { s.note("TryShare"); return s.free }
func (s *fileSide) TryAlone(*sched.Task) bool { s.note("TryAlone"); return s.free }
func (s *fileSide) TryLockRange(_ *sched.Task, a, b uint64) bool {
	s.note(fmt.Sprint("TryLockRange ", a, " ", b))
	return s.free
}
func (s *fileSide) Unlock(*sched.Task)                    { s.note("Unlock") }
func (s *fileSide) LockRange(_ *sched.Task, a, b uint64)  { s.note(fmt.Sprint("LockRange ", a, " ", b)) }
func (s *fileSide) UnlockRange(*sched.Task)               { s.note("UnlockRange") }
func (s *fileSide) Count(*sched.Task)                     { s.note("Count") }
func (s *fileSide) Uncount(*sched.Task)                   { s.note("Uncount") }
func (s *fileSide) Drain(*sched.Task)                     { s.note("Drain") }
func (s *fileSide) Size(*sched.Task) uint64               { return 100 }
func (s *fileSide) Range(*sched.Task) (start, end uint64) { return s.start, s.start + 50 }
func (s *fileSide) Len() uint64                           { return 50 }
func (s *fileSide) Appends() bool                         { return false }
func (s *fileSide) Prewait(*sched.Task)                   { s.note("Prewait") }
func (s *fileSide) Place(*sched.Task) uint64              { return s.start }
func (s *fileSide) Begin(*sched.Task) error               { s.note("Begin"); return s.begin }
func (s *fileSide) Balance(*sched.Task)                   { s.note("Balance") }
func (s *fileSide) Copy(*sched.Task)                      { s.note("Copy") }
func (s *fileSide) NewSize() uint64                       { return 10 }
func (s *fileSide) SetSize(*sched.Task) bool              { s.note("SetSize"); return true }
func (s *fileSide) DropExtents(*sched.Task)               { s.note("DropExtents") }
func (s *fileSide) Punches() bool                         { return true }
func (s *fileSide) Change(*sched.Task)                    { s.note("Change") }
func (s *fileSide) Start(*sched.Task)                     { s.note("Start") }
func (s *fileSide) Flush(*sched.Task)                     { s.note("Flush") }
func (s *fileSide) Commit(*sched.Task)                    { s.note("Commit") }
func (s *fileSide) Batch(_ *sched.Task, pages int) (more bool, err error) {
	s.note(fmt.Sprint("Batch ", pages))
	if s.batches++; s.batches == 2 {
		return false, s.batch
	}
	return true, nil
}

// funcs is a policy of functions.
type funcs struct {
	write     func(t *Task, w *WriteOp)
	read      func(t *Task, r *ReadOp)
	truncate  func(t *Task, x *TruncateOp)
	fallocate func(t *Task, x *FallocateOp)
	fsync     func(t *Task, x *FsyncOp)
}

func (f funcs) Write(t *Task, w *WriteOp)         { f.write(t, w) }
func (f funcs) Read(t *Task, r *ReadOp)           { f.read(t, r) }
func (f funcs) Truncate(t *Task, x *TruncateOp)   { f.truncate(t, x) }
func (f funcs) Fallocate(t *Task, x *FallocateOp) { f.fallocate(t, x) }
func (f funcs) Fsync(t *Task, x *FsyncOp)         { f.fsync(t, x) }

// TestPolicyMisuse: an operation whose steps are in an order that none can have, that is another's,
// or that leaves something undone, is a panic in the words of its user. A right one reaches the
// write path step by step.
func TestPolicyMisuse(t *testing.T) {
	all := func(t *Task, w *WriteOp) {
		for more := w.Begin(t); more; {
			more = w.Batch(t, BatchMax)
		}
	}
	var kept *ReadOp
	for _, tt := range []struct {
		f     funcs
		want  string // the panic, or the calls after "="
		start uint64
	}{
		{f: funcs{write: func(t *Task, w *WriteOp) {
			w.Prewait(t)
			w.Share(t)
			w.LockRange(t, w.Range(t).Start, w.Range(t).End)
			all(t, w)
			w.UnlockRange(t)
			w.Unlock(t)
			w.Balance(t)
		}}, want: "=Prewait Share LockRange 0 50 Begin Batch 512 Batch 512 UnlockRange Unlock Balance"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Count(t); all(t, w); w.Uncount(t) }}, want: "=Count Begin Batch 512 Batch 512 Uncount"},
		{f: funcs{read: func(t *Task, r *ReadOp) { r.Copy(t) }}, want: "=Copy"},
		{f: funcs{truncate: func(t *Task, x *TruncateOp) { x.Alone(t); x.Drain(t); x.SetSize(t); x.DropExtents(t); x.Unlock(t) }}, want: "=Alone Drain SetSize DropExtents Unlock"},
		{f: funcs{fallocate: func(t *Task, x *FallocateOp) { x.Alone(t); x.Change(t); x.Unlock(t) }}, want: "=Alone Change Unlock"},
		{f: funcs{fsync: func(t *Task, x *FsyncOp) { x.Start(t); x.Flush(t); x.Commit(t) }}, want: "=Start Flush Commit"},

		{f: funcs{write: func(_ *Task, w *WriteOp) { w.Share(nil) }}, want: "kit.WriteOp.Share without a task"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Share(On(&sched.Task{})) }}, want: "kit.WriteOp.Share by another task"},
		{f: funcs{read: func(t *Task, r *ReadOp) { r.Copy(t); kept = r }}, want: "=Copy"},
		{f: funcs{read: func(t *Task, r *ReadOp) { kept.Size(t) }}, want: "kit.ReadOp.Size after the operation"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Share(t); w.Alone(t) }}, want: "kit.WriteOp.Alone by an operation that has i_rwsem"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Alone(t); w.Share(t) }}, want: "kit.WriteOp.Share by an operation that has i_rwsem"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Unlock(t) }}, want: "kit.WriteOp.Unlock without i_rwsem"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.LockRange(t, 0, 1); w.LockRange(t, 1, 2) }}, want: "kit.WriteOp.LockRange by an operation that has a range"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.LockRange(t, 1, 1) }}, want: "kit.WriteOp.LockRange of no bytes"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.LockRange(t, 1, EndOfFiles+1) }}, want: "kit.WriteOp.LockRange of no bytes, or beyond EndOfFiles"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.UnlockRange(t) }}, want: "kit.WriteOp.UnlockRange without a range"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Count(t); w.Count(t) }}, want: "kit.WriteOp.Count a second time"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Uncount(t) }}, want: "kit.WriteOp.Uncount without Count"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Count(t); w.Drain(t) }}, want: "kit.WriteOp.Drain by an operation that is counted"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Batch(t, 1) }}, want: "kit.WriteOp.Batch before Begin"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Begin(t); w.Batch(t, 0) }}, want: "kit.WriteOp.Batch of no pages"},
		{f: funcs{write: func(t *Task, w *WriteOp) { all(t, w); w.Batch(t, 1) }}, want: "kit.WriteOp.Batch after the last batch"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Share(t); w.Begin(t) }}, want: "kit.WriteOp.Begin without i_rwsem for writing", start: 101},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Alone(t); all(t, w); w.Unlock(t) }}, want: "=Alone Begin Batch 512 Batch 512 Unlock", start: 101},
		{f: funcs{write: func(t *Task, w *WriteOp) { all(t, w) }}, want: "=Begin Batch 512 Batch 512", start: 100},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Begin(t); w.Begin(t) }}, want: "kit.WriteOp.Begin a second time"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Begin(t); w.Batch(t, 1) }}, want: "Write has returned before its last batch"},
		{f: funcs{write: func(t *Task, w *WriteOp) {}}, want: "Write has returned before its last batch"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Share(t); all(t, w) }}, want: "Write has returned with i_rwsem held"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Alone(t); all(t, w) }}, want: "Write has returned with i_rwsem held"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.LockRange(t, 0, 1); all(t, w) }}, want: "Write has returned with its range held"},
		{f: funcs{write: func(t *Task, w *WriteOp) { w.Count(t); all(t, w) }}, want: "Write has returned and is still counted"},
		{f: funcs{read: func(t *Task, r *ReadOp) {}}, want: "Read has returned without Copy"},
		{f: funcs{read: func(t *Task, r *ReadOp) { r.Copy(t); r.Copy(t) }}, want: "kit.ReadOp.Copy a second time"},
		{f: funcs{truncate: func(t *Task, x *TruncateOp) {}}, want: "Truncate has returned without SetSize"},
		{f: funcs{truncate: func(t *Task, x *TruncateOp) { x.SetSize(t) }}, want: "kit.TruncateOp.SetSize without i_rwsem for writing"},
		{f: funcs{truncate: func(t *Task, x *TruncateOp) { x.Share(t); x.SetSize(t) }}, want: "kit.TruncateOp.SetSize without i_rwsem for writing"},
		{f: funcs{truncate: func(t *Task, x *TruncateOp) { x.Alone(t); x.SetSize(t); x.SetSize(t) }}, want: "kit.TruncateOp.SetSize a second time"},
		{f: funcs{truncate: func(t *Task, x *TruncateOp) { x.Alone(t); x.SetSize(t); x.Unlock(t) }}, want: "Truncate has returned without DropExtents"},
		{f: funcs{truncate: func(t *Task, x *TruncateOp) { x.DropExtents(t) }}, want: "kit.TruncateOp.DropExtents where SetSize has not asked"},
		{f: funcs{fallocate: func(t *Task, x *FallocateOp) {}}, want: "Fallocate has returned without Change"},
		{f: funcs{fallocate: func(t *Task, x *FallocateOp) { x.Change(t); x.Change(t) }}, want: "kit.FallocateOp.Change a second time"},
		{f: funcs{fsync: func(t *Task, x *FsyncOp) { x.Flush(t) }}, want: "Fsync has returned without Commit"},
		{f: funcs{fsync: func(t *Task, x *FsyncOp) { x.Commit(t) }}, want: "kit.FsyncOp.Commit before Flush"},
	} {
		got := ""
		side := &fileSide{start: tt.start}
		func() {
			defer func() {
				if p := recover(); p != nil {
					got = fmt.Sprint(p)
				}
			}()
			l, task := PolicyRunner{Policy: tt.f}, &sched.Task{}
			switch f := tt.f; {
			case f.write != nil:
				_ = l.Write(task, side)
			case f.read != nil:
				l.Read(task, side)
			case f.truncate != nil:
				l.Truncate(task, side)
			case f.fallocate != nil:
				l.Fallocate(task, side)
			default:
				l.Fsync(task, side)
			}
			got = "=" + strings.Join(side.calls, " ")
		}()
		if !strings.HasPrefix(got, tt.want) || tt.want[0] == '=' && got != tt.want {
			t.Errorf("have %q want %q", got, tt.want)
		}
	}
}

// TestWriteFails: an error of Begin or of a batch ends the write, and is the write's, in each lab's
// words.
func TestWriteFails(t *testing.T) {
	failed := errors.New("failed")
	policy := funcs{write: func(t *Task, w *WriteOp) {
		for more := w.Begin(t); more; {
			more = w.Batch(t, BatchMax)
		}
	}}
	for _, tt := range []struct {
		begin, batch error
		calls        string
	}{
		{begin: failed, calls: "Begin"},
		{batch: failed, calls: "Begin Batch 512 Batch 512"},
	} {
		for name, write := range map[string]func(t *sched.Task, side *fileSide) error{
			"policy": func(t *sched.Task, side *fileSide) error { return PolicyRunner{Policy: policy}.Write(t, side) },
			"locked": func(t *sched.Task, side *fileSide) error {
				return RunLocked(func(t *Task, w *LockedWrite) { w.Place(t); w.Copy(t) }, t, side)
			},
		} {
			side := &fileSide{begin: tt.begin, batch: tt.batch}
			if err := write(&sched.Task{}, side); !errors.Is(err, failed) || strings.Join(side.calls, " ") != tt.calls {
				t.Errorf("%s: have %v after %q want %v after %q", name, err, side.calls, failed, tt.calls)
			}
		}
	}
}

// TestTries: a try that gets its lock must let it go, and one that does not must not; a lock is not
// tried by who has it. TryLock of a Mutex is alike.
func TestTries(t *testing.T) {
	finish := func(t *Task, w *WriteOp) {
		for more := w.Begin(t); more; {
			more = w.Batch(t, BatchMax)
		}
	}
	for _, tt := range []struct {
		free  bool
		write func(t *Task, w *WriteOp)
		want  string
	}{
		{true, func(t *Task, w *WriteOp) { w.TryAlone(t); finish(t, w); w.Unlock(t) }, "=TryAlone Begin Batch 512 Batch 512 Unlock"},
		{true, func(t *Task, w *WriteOp) { w.TryShare(t); finish(t, w); w.Unlock(t) }, "=TryShare Begin Batch 512 Batch 512 Unlock"},
		{true, func(t *Task, w *WriteOp) { w.TryLockRange(t, 0, 9); finish(t, w); w.UnlockRange(t) }, "=TryLockRange 0 9 Begin Batch 512 Batch 512 UnlockRange"},
		{false, func(t *Task, w *WriteOp) { w.TryAlone(t); w.Alone(t); finish(t, w); w.Unlock(t) }, "=TryAlone Alone Begin Batch 512 Batch 512 Unlock"},
		{false, func(t *Task, w *WriteOp) { w.TryAlone(t); w.Unlock(t) }, "kit.WriteOp.Unlock without i_rwsem"},
		{false, func(t *Task, w *WriteOp) { w.TryShare(t); w.Unlock(t) }, "kit.WriteOp.Unlock without i_rwsem"},
		{false, func(t *Task, w *WriteOp) { w.TryLockRange(t, 0, 9); w.UnlockRange(t) }, "kit.WriteOp.UnlockRange without a range"},
		{true, func(t *Task, w *WriteOp) { w.TryAlone(t); finish(t, w) }, "Write has returned with i_rwsem held"},
		{true, func(t *Task, w *WriteOp) { w.TryLockRange(t, 0, 9); finish(t, w) }, "Write has returned with its range held"},
		{true, func(t *Task, w *WriteOp) { w.Share(t); w.TryAlone(t) }, "kit.WriteOp.TryAlone by an operation that has i_rwsem"},
		{true, func(t *Task, w *WriteOp) { w.TryLockRange(t, 0, 9); w.TryLockRange(t, 20, 30) }, "kit.WriteOp.TryLockRange by an operation that has a range"},
		{true, func(t *Task, w *WriteOp) { w.TryLockRange(t, 9, 9) }, "kit.WriteOp.TryLockRange of no bytes"},
	} {
		side, got := &fileSide{start: 20, free: tt.free}, ""
		func() {
			defer func() {
				if p := recover(); p != nil {
					got = fmt.Sprint(p)
				}
			}()
			_ = PolicyRunner{Policy: funcs{write: tt.write}}.Write(&sched.Task{}, side)
			got = "=" + strings.Join(side.calls, " ")
		}()
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("have %q want %q", got, tt.want)
		}
	}
	var m Mutex
	m.Init()
	a, b := On(&sched.Task{}), On(&sched.Task{})
	if !m.TryLock(a) || m.TryLock(b) {
		t.Error("a lock that is free, and then one that is held: have otherwise than true and false")
	}
	func() {
		defer func() {
			if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "kit.Mutex.TryLock by the task that holds it") {
				t.Errorf("tried by its holder: %s", p)
			}
		}()
		m.TryLock(a)
	}()
	if m.Unlock(a); !m.TryLock(b) {
		t.Error("let go, and not to be had")
	}
}
