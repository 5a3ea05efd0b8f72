// Package treelog writes what fsync logs, and brings it back. An fsync of the kernel does not
// commit: it copies the items of one inode to a log tree, one for each subvolume, and makes the
// superblock point at the tree of these trees. After a crash the last commit is whole, the log says
// what came after it, and the next mount replays it before anybody looks.
//
// One invariant makes the rest easy: a log only adds to the last commit. It is freed when the next
// commit is durable, and whatever it cannot say is no error but a commit (ErrCommit): a caller that
// always falls back is right.
//
//	h := Trans.TryStart              the transaction stays open until the log is durable
//	ticket, err := Logs.Log(h, ip)   with the file's range locked: its items are copied
//	Logs.AttachOrdered(h, ip, list)  the commit waits for what only the log has yet
//	unlock the file
//	err = Logs.Sync(h, ticket)       log blocks, tree of logs, flush, superblock
//	h.End; if err != nil: Trans.Commit
//
// Replay goes over all log trees four times, in one transaction:
//
//	pin       the blocks of the logs look free: nothing may be allocated there
//	inodes    inode items; names and attributes that are not in the log go, and file extents beyond the size that the inode has then
//	names     entries of directories whose inode is not logged with that name
//	rest      names of inodes, attributes, file extents with their references and checksums
//
// and then counts the links of every inode that it touched. An inode without a name is left as an
// orphan, and deleted as one. The commit that ends replay makes the superblock point at no log.
//
// Whatever is wrong with a log ends the replay with an error, and nothing on the device has
// changed.
//
// Model: fs/btrfs/tree-log.c:btrfs_recover_log_trees(); labs/reference 6.8. Differences: the inodes
// whose links are to be counted are kept in memory and not as items, since a crash before the
// commit undoes all; a leaf of a log is copied before its items are replayed; no mixed block
// groups.
package treelog
