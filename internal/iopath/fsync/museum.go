package fsync

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/treelog"
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// logFirst is Sync in the wrong order WRONG_LOG_BEFORE_DATA.
func logFirst(t *sched.Task, env *iopath.Env, ip *inode.Inode) error {
	ip.Lock(t)
	defer ip.Unlock(t)
	ip.IOTree.Lock(t, 0, pagecache.MaxFileEnd)
	h, err := env.Trans.Start(t, 0)
	if err == nil {
		var k treelog.Ticket
		if k, err = env.Logs.Log(t, h, ip, nil); err == nil {
			err = env.Logs.Sync(t, h, k)
		}
		_ = h.End(t)
	}
	ip.IOTree.Unlock(t, 0, pagecache.MaxFileEnd)
	if werr := flushAndWait(t, env, ip); err == nil || werr != nil {
		return werr
	}
	return env.Trans.Commit(t)
}
