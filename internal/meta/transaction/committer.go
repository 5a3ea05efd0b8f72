package transaction

import (
	"time"

	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// The committer is a task that commits a transaction once it is old enough, so that what nobody
// syncs becomes durable, and the space that it freed and the blocks of its logs can be used again.
//
//	no transaction runs    sleep until one begins (enter)
//	it is too young        sleep until it is old enough; others may commit it meanwhile
//	it is old enough       commit it
//
// Models fs/btrfs/disk-io.c:transaction_kthread(). Difference: it does not wake up while no
// transaction runs, so that a program of which no task can go on is found to be stuck.

var classCommitter = lockdep.NewClass("committer_idle")

// StartCommitter starts a task of t's runtime that commits each transaction which is older than
// interval. StopCommitter ends it. Neither is called while a task of the other callers is in the
// Manager; a Manager has one committer at most.
func (m *Manager) StartCommitter(t *sched.Task, interval time.Duration) {
	m.idle.Init(classCommitter)
	m.interval = int64(interval)
	m.stop.Store(false)
	m.committer = t.Go("transaction", m.commitLoop)
}

// StopCommitter ends the committer, if there is one, after a commit that it has begun.
func (m *Manager) StopCommitter(t *sched.Task) {
	if m.committer == nil {
		return
	}
	m.stop.Store(true)
	m.idle.Wake(t)
	t.Join(m.committer)
	m.committer, m.interval = nil, 0
}

func (m *Manager) commitLoop(t *sched.Task) {
	t.Doing("commit")
	for !m.stop.Load() {
		switch tx, left := m.due(t); {
		case tx == nil:
			m.idle.Wait(t, func() bool { return m.begun.Load() || m.stop.Load() })
		case left > 0:
			m.idle.WaitAtMost(t, left, m.stop.Load)
		default:
			// a failed one aborts, and the next task to change anything is told
			_ = m.commitOne(t, tx)
		}
	}
}

// due returns the running transaction and how long it may still grow; nil when there is nothing to
// commit.
func (m *Manager) due(t *sched.Task) (*Transaction, time.Duration) {
	m.lockWrite(t)
	defer m.mu.Unlock(t)
	tx := m.running
	if tx == nil || m.aborted != nil {
		m.begun.Store(false)
		return nil, 0
	}
	return tx, time.Duration(tx.began + m.interval - t.Now())
}
