package lock

import (
	"sync"
	"testing"

	"btrlab/internal/sched"
)

func BenchmarkSyncMutex(b *testing.B) {
	var m sync.Mutex
	for b.Loop() {
		m.Lock()
		m.Unlock()
	}
}

func BenchmarkMutex(b *testing.B) {
	t := sched.NewTask("bench")
	var m Mutex
	for b.Loop() {
		m.Lock(t)
		m.Unlock(t)
	}
}

func BenchmarkSyncRWMutexRead(b *testing.B) {
	var m sync.RWMutex
	for b.Loop() {
		m.RLock()
		m.RUnlock()
	}
}

func BenchmarkRWSemRead(b *testing.B) {
	t := sched.NewTask("bench")
	var m RWSem
	for b.Loop() {
		m.RLock(t)
		m.RUnlock(t)
	}
}

func BenchmarkSyncRWMutexWrite(b *testing.B) {
	var m sync.RWMutex
	for b.Loop() {
		m.Lock()
		m.Unlock()
	}
}

func BenchmarkRWSemWrite(b *testing.B) {
	t := sched.NewTask("bench")
	var m RWSem
	for b.Loop() {
		m.Lock(t)
		m.Unlock(t)
	}
}
