//go:build !portable

package conform

import (
	"fmt"
	"strings"

	"btrlab/internal/hostio"
)

// probes are the kernel's functions whose steps the rows of tracepoints with system btrlab are, by
// their events. i_rwsem has no tracepoint and no function of its own: its events are those of all
// rw_semaphores, read as if each were the one in an inode; that of no other has our file system's
// device at the place.
func probes() ([]hostio.Probe, error) {
	const rwsem, number, super, mode, size, device = "inode.i_rwsem", "inode.i_ino", "inode.i_sb", "inode.i_mode", "inode.i_size", "super_block.s_dev"
	at, err := hostio.KernelOffsets(rwsem, number, super, mode, size, device)
	if err != nil {
		return nil, err
	}
	if len(at) != 6 {
		return nil, fmt.Errorf("the kernel's type information lacks members of its inodes: have %v", at)
	}
	rel := func(member string) string { return fmt.Sprintf("%+d(sem)", at[member]-at[rwsem]) }
	sem := fmt.Sprintf("sdev=+%d(%s):u32 ino=%s:u64 mode=%s:u16 isize=%s:s64", at[device], rel(super), rel(number), rel(mode), rel(size))
	inode := func(path string) string {
		return strings.NewReplacer("I", path).Replace("sdev=Ii_sb->s_dev ino=Ii_ino mode=Ii_mode isize=Ii_size")
	}
	vfs, own, folio := inode("inode->"), inode("inode->vfs_inode."), inode("folio->mapping->host->")+" index=folio->index"
	list := []hostio.Probe{
		{Name: "inode_lock", Func: "down_write", Args: sem},
		{Name: "inode_lock_killable", Func: "down_write_killable", Args: sem},
		{Name: "inode_unlock", Func: "up_write", Args: sem},
		{Name: "inode_lock_shared", Func: "down_read", Args: sem},
		{Name: "inode_unlock_shared", Func: "up_read", Args: sem},
		{Name: "inode_dio_wait", Func: "inode_dio_wait", Args: vfs},
		{Name: "btrfs_wait_ordered_range", Func: "btrfs_wait_ordered_range", Args: own + " start=start len=len"},
		{Name: "btrfs_inode_safe_disk_i_size_write", Func: "btrfs_inode_safe_disk_i_size_write", Args: own + " size=new_i_size"},
		{Name: "folio_unlock", Func: "folio_unlock", Args: folio},
		{Name: "folio_end_read", Func: "folio_end_read", Args: folio},
		{Name: "folio_wait_writeback", Func: "folio_wait_writeback", Args: folio},
		{Name: "folio_start_writeback", Func: "__folio_start_writeback", Args: folio},
		{Name: "folio_end_writeback", Func: "folio_end_writeback", Args: folio},
		{Name: "btrfs_drew_try_write_lock", Func: "btrfs_drew_try_write_lock"},
		{Name: "btrfs_drew_write_lock", Func: "btrfs_drew_write_lock"},
		{Name: "btrfs_drew_write_unlock", Func: "btrfs_drew_write_unlock"},
		{Name: "btrfs_drew_read_lock", Func: "btrfs_drew_read_lock"},
		{Name: "btrfs_drew_read_unlock", Func: "btrfs_drew_read_unlock"},
	}
	for i := range list {
		list[i].Name = functions + list[i].Name
	}
	return list, nil
}
