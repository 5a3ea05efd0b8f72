package buffered

import (
	"btrlab/internal/data/fileread"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Read copies the bytes of the file from rq.Pos on to p, as far as the file goes, and returns how
// many it copied. It takes no i_rwsem in any era and no page lock: a read that overlaps a write may
// see some of it and some of what was before (labs/reference 1.5). ra may be nil.
//
// Models mm/filemap.c:generic_file_buffered_read().
func Read(t *sched.Task, env *iopath.Env, ip *inode.Inode, rq kiocb.Request, p []byte, ra *fileread.State) (int, error) {
	if err := refuse(rq.Flags &^ kiocb.Nowait); err != nil {
		return 0, err
	}
	pos, nowait := rq.Pos, rq.Flags&kiocb.Nowait != 0
	t.Spend(cost.Syscall, 1)
	t.Spend(cost.Cold, 1)
	if lab := iopath.LabOf(ip); lab != nil && !nowait {
		return readByLab(t, env, ip, pos, p, ra, lab)
	}
	return read(t, env, ip, pos, nowait, p, ra)
}

// read is Read without its locks, of which a policy for the file may have some.
func read(t *sched.Task, env *iopath.Env, ip *inode.Inode, pos uint64, nowait bool, p []byte, ra *fileread.State) (int, error) {
	done := 0
	for done < len(p) {
		size := ip.Size(t)
		if pos >= size {
			break
		}
		in := pos & (pagecache.PageSize - 1)
		left := min(uint64(len(p)-done), size-pos)
		want := int((in + left + pagecache.PageSize - 1) >> pagecache.PageShift)
		var pg *pagecache.Page
		var err error
		if nowait {
			if pg = env.Read.CachedPage(t, ip, pos>>pagecache.PageShift); pg == nil {
				return done, kiocb.AgainCached
			}
		} else if pg, err = env.Read.ReadPage(t, ip, pos>>pagecache.PageShift, want, ra); err != nil {
			return done, err
		}
		// i_size again, now that the page is uptodate: a truncate may have zeroed its end
		// meanwhile.
		if size = ip.Size(t); pos >= size {
			pg.Put(t)
			break
		}
		t.Spend(cost.Copy, int(min(left, pagecache.PageSize-in)))
		n := pg.Read(t, p[done:done+int(min(uint64(len(p)-done), size-pos))], in)
		pg.Put(t)
		done += n
		pos += uint64(n)
	}
	return done, nil
}
