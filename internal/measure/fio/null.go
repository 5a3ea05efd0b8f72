package fio

import "btrlab/internal/sched"

// nullTarget is the file of ioengine=null: nothing is opened, laid out or moved.
type nullTarget struct{}

func (nullTarget) ReadAt(_ *sched.Task, p []byte, _ int64) (int, error)      { return len(p), nil }
func (nullTarget) WriteAt(_ *sched.Task, p []byte, _ int64) (int, error)     { return len(p), nil }
func (nullTarget) ReadDirect(_ *sched.Task, p []byte, _ int64) (int, error)  { return len(p), nil }
func (nullTarget) WriteDirect(_ *sched.Task, p []byte, _ int64) (int, error) { return len(p), nil }
func (nullTarget) Truncate(*sched.Task, int64) error                         { return nil }
func (nullTarget) Fallocate(*sched.Task, uint32, int64, int64) error         { return nil }
func (nullTarget) Fsync(*sched.Task) error                                   { return nil }
func (nullTarget) Size(*sched.Task) int64                                    { return 0 }

func isNull(x Target) bool {
	_, ok := x.(nullTarget)
	return ok
}
