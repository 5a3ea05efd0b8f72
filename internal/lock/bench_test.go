package lock

import (
	"sync"
	"testing"

	"btrlab/internal/sched"
)

// benchTask is a task without lockdep, as outside of tests.
func benchTask() *sched.Task {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	return sched.NewTask("bench")
}

// held is the data that the critical sections touch.
var held int

func BenchmarkSyncMutex(b *testing.B) {
	var m sync.Mutex
	for b.Loop() {
		m.Lock()
		held++
		m.Unlock()
	}
}

func BenchmarkMutex(b *testing.B) {
	t := benchTask()
	var m Mutex
	for b.Loop() {
		m.Lock(t)
		held++
		m.Unlock(t)
	}
}

func BenchmarkSyncRWMutexRead(b *testing.B) {
	var m sync.RWMutex
	for b.Loop() {
		m.RLock()
		held++
		m.RUnlock()
	}
}

func BenchmarkRWSemRead(b *testing.B) {
	t := benchTask()
	var m RWSem
	for b.Loop() {
		m.RLock(t)
		held++
		m.RUnlock(t)
	}
}

func BenchmarkSyncRWMutexWrite(b *testing.B) {
	var m sync.RWMutex
	for b.Loop() {
		m.Lock()
		held++
		m.Unlock()
	}
}

func BenchmarkRWSemWrite(b *testing.B) {
	t := benchTask()
	var m RWSem
	for b.Loop() {
		m.Lock(t)
		held++
		m.Unlock(t)
	}
}
