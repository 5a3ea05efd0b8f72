package inode

import (
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// atimeAge is how old an access time gets under relatime, in seconds.
const atimeAge = 24 * 60 * 60

// NeedsAtime reports whether a read at the time now changes the access time: with always whenever
// it is another, else (relatime) if it is not after mtime and ctime or a day old. That it does not
// is known without a lock, until the item changes.
//
// Models atime_needs_update() and relatime_need_update().
func (ip *Inode) NeedsAtime(t *sched.Task, now format.Timespec, always bool) bool {
	if !always && now.Sec < ip.atimeGood.Load() {
		return false
	}
	ip.mu.Lock(t)
	defer ip.mu.Unlock(t)
	ip.itemData.Read(t, nameItem)
	at := ip.item.Atime
	if always || !ip.item.Mtime.Before(at) || !ip.item.Ctime.Before(at) || now.Sec-at.Sec >= atimeAge {
		return at != now
	}
	ip.atimeGood.Store(at.Sec + atimeAge)
	return false
}
