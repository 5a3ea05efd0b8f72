package fs

import "btrlab/internal/data/inode"

// Inode is what a test needs to see a lock held.
func (f *File) Inode() *inode.Inode { return f.n.Inode }
