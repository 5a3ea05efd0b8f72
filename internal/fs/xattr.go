package fs

import "btrlab/internal/sched"

// Listxattr lists the names of the inode's extended attributes, in the order of its tree. Models btrfs_listxattr().
func (n *Node) Listxattr(t *sched.Task) ([]string, error) {
	return n.fs.store.Listxattr(t, n.vol.root, n.ip.Ino)
}

// Getxattr reads an extended attribute. ENOENT when the inode has none of the name: ENODATA to a system call. Models btrfs_getxattr().
func (n *Node) Getxattr(t *sched.Task, name string) ([]byte, error) {
	return n.fs.store.Getxattr(t, n.vol.root, n.ip.Ino, name)
}
