// Package mount serves an open image to the kernel of a Linux machine by FUSE, so that any program
// can use it as a directory: each request of the kernel becomes a call of package fs.
//
// A request is a task of its own, on the real runtime, and runs beside all others: the only locks
// around an inode are those of the engine, which the policy chooses. Unless Options.KernelCache is
// set the kernel keeps no file data (FOPEN_DIRECT_IO) and lets writes of one file inside its size
// come in at once (FOPEN_PARALLEL_DIRECT_WRITES); if it is set, only of files that are opened with
// O_DIRECT. Requests come by reads of /dev/fuse, or by io_uring (package ring).
//
// The kernel checks permissions (default_permissions), resolves paths, and keeps names, attributes
// and advisory locks: it is the only one that changes the image, so what it keeps stays true; who
// changes it otherwise says so (Mount.Changed). What this package adds to the engine is the table
// of node ids and file handles, and a gate that every request passes, for Mount.Frozen.
//
// Model: fs/fuse in Linux, as the other end of include/uapi/linux/fuse.h. Differences from a btrfs
// that the kernel mounts: what programs read from the kernel's cache changes no access times; all
// subvolumes are one device, so the inode numbers of those below the mounted one are made up;
// FICLONE, FIEMAP and the ioctls of btrfs-progs do not get here.
package mount
