package conform

// Setups: a file of 64 KiB, of one extent on the device, open; the same NOCOW; and one that is
// preallocated; the first and the last without checksums as well, since Linux writes directly to
// such files only.
const (
	nosum         = "nosum; " + file
	nosumPrealloc = "nosum; " + prealloc
	file          = "create f; write f 0 64k; sync;"
	nocow         = "create f; nocow f; write f 0 64k; sync;"
	prealloc      = "create f; falloc f 0 64k; sync;"
)

// Ops is the table of operations.
var Ops = []Op{
	{Name: "write-inside", About: "buffered write of a block inside EOF", Setup: file, Do: "write f 4k 4k"},
	{Name: "write-half-page", About: "buffered write of half a cached page", Setup: file, Do: "write f 4k 2k"},
	{Name: "write-half-page-cold", About: "buffered write of half a page that is not in memory", Setup: file + "drop f", Do: "write f 4k 2k"},
	{Name: "write-extending", About: "buffered write at EOF", Setup: file, Do: "write f 64k 4k"},
	{Name: "write-beyond", About: "buffered write beyond EOF", Setup: file, Do: "write f 128k 4k"},
	{Name: "write-again", About: "buffered write of a block that is dirty", Setup: file + "write f 4k 4k", Do: "write f 4k 4k"},
	{Name: "write-new-file", About: "first buffered write of an empty file", Setup: "create f; sync", Do: "write f 0 64k"},
	{Name: "write-nocow", About: "buffered write of a NOCOW file", Setup: nocow, Do: "write f 4k 4k"},
	{Name: "write-prealloc", About: "buffered write into preallocated space", Setup: prealloc, Do: "write f 4k 4k"},
	{Name: "write-nowait", About: "buffered write with checksums that must not wait", Setup: file, Do: "? nwrite f 4k 4k"},
	{Name: "write-nowait-nocow", About: "buffered write of a NOCOW file that must not wait", Setup: nocow, Do: "? nwrite f 4k 4k"},
	{Name: "write-nowait-prealloc", About: "buffered write into preallocated space that must not wait", Setup: prealloc, Do: "? nwrite f 4k 4k"},
	{Name: "write-dsync", About: "buffered write at EOF that is durable when it returns (O_DSYNC)", Setup: file + "fsync f", Do: "swrite f 64k 4k"},
	{Name: "writeback", About: "writeback of a dirty block, and its completion", Setup: file + "write f 4k 4k", Do: "start f"},
	{Name: "writeback-nocow", About: "writeback of a dirty block of a NOCOW file", Setup: nocow + "write f 4k 4k", Do: "start f"},
	{Name: "writeback-prealloc", About: "writeback into preallocated space", Setup: prealloc + "write f 4k 4k", Do: "start f"},
	{Name: "writeback-many", About: "writeback of eight blocks with holes between them", Setup: file +
		"write f 0 4k; write f 8k 4k; write f 16k 4k; write f 24k 4k; write f 32k 4k; write f 40k 4k; write f 48k 4k; write f 56k 4k", Do: "start f"},
	{Name: "writeback-inline", About: "writeback of a file of 1 KiB, which becomes inline", Setup: "create f; sync; write f 0 1k", Do: "start f"},
	{Name: "dwrite", About: "direct write of an aligned block with checksums, so a buffered one", Setup: file, Do: "dwrite f 4k 4k"},
	{Name: "dwrite-extending", About: "direct write at EOF with checksums, so a buffered one", Setup: file, Do: "dwrite f 64k 4k"},
	{Name: "dwrite-nocow", About: "direct write of a NOCOW file", Setup: nocow, Do: "dwrite f 4k 4k"},
	{Name: "dwrite-prealloc", About: "direct write into preallocated space with checksums, so a buffered one", Setup: prealloc, Do: "dwrite f 4k 4k"},
	{Name: "dwrite-sector", About: "direct write of a sector of 512 bytes, so a buffered one", Setup: file, Do: "dwrite f 4k 512"},
	{Name: "dwrite-nosum", About: "direct write of a block without checksums", Setup: nosum, Do: "dwrite f 4k 4k"},
	{Name: "dwrite-nosum-extending", About: "direct write at EOF without checksums", Setup: nosum, Do: "dwrite f 64k 4k"},
	{Name: "dwrite-nosum-beyond", About: "direct write beyond EOF without checksums", Setup: nosum, Do: "dwrite f 128k 4k"},
	{Name: "dwrite-nosum-prealloc", About: "direct write into preallocated space without checksums", Setup: nosumPrealloc, Do: "dwrite f 4k 4k"},
	{Name: "dwrite-nosum-hole", About: "direct write into a hole without checksums", Setup: "nosum; create f; truncate f 64k; sync", Do: "dwrite f 4k 4k"},
	{Name: "dwrite-nosum-cached", About: "direct write without checksums of pages that are in memory and dirty", Setup: nosum + "write f 4k 4k", Do: "dwrite f 4k 4k"},
	{Name: "dwrite-nowait-nocow", About: "direct write of a NOCOW file that must not wait", Setup: nocow + "drop f", Do: "? ndwrite f 4k 4k"},
	{Name: "dwrite-nowait-cached", About: "direct write of a NOCOW file that must not wait, with the page in memory", Setup: nocow, Do: "? ndwrite f 4k 4k"},
	{Name: "dwrite-nowait-nosum", About: "direct write without checksums that must not wait, and needs new space", Setup: nosum + "drop f", Do: "? ndwrite f 4k 4k"},
	{Name: "dwrite-nowait-prealloc", About: "direct write into preallocated space without checksums that must not wait", Setup: nosumPrealloc, Do: "? ndwrite f 4k 4k"},
	{Name: "read-cached", About: "buffered read of cached pages", Setup: file, Do: "read f 0 64k"},
	{Name: "read-cold", About: "buffered read of pages that are not in memory", Setup: file + "drop f", Do: "read f 0 4k"},
	{Name: "read-hole", About: "buffered read of a hole", Setup: "create f; truncate f 64k; sync", Do: "read f 0 4k"},
	{Name: "dread", About: "direct read", Setup: file + "drop f", Do: "dread f 0 4k"},
	{Name: "dread-nowait", About: "direct read that must not wait, of a file that was cloned over", Setup: file + "create g; write g 0 64k; sync; reflink f g; sync; drop g", Do: "? ndread g 0 4k"},
	{Name: "fault", About: "page fault of a mapping, of a page that is not in memory", Setup: file + "drop f", Do: "fault f 0"},
	{Name: "store", About: "store into a mapping, of a page that is in memory and clean", Setup: file, Do: "store f 4k"},
	{Name: "truncate-same", About: "truncate to the size that the file has", Setup: file, Do: "truncate f 64k"},
	{Name: "truncate-same-dirty", About: "truncate to the size that the file has, which ends inside a block that is dirty", Setup: file + "write f 64k 2k", Do: "truncate f 66k"},
	{Name: "truncate-down", About: "truncate to a block boundary", Setup: file, Do: "truncate f 32k"},
	{Name: "truncate-into", About: "truncate into a block", Setup: file, Do: "truncate f 6k"},
	{Name: "truncate-up", About: "truncate that makes the file longer", Setup: file, Do: "truncate f 128k"},
	{Name: "truncate-dirty", About: "truncate below dirty pages", Setup: file + "write f 48k 16k", Do: "truncate f 32k"},
	{Name: "punch", About: "punch a hole of whole blocks", Setup: file, Do: "punch f 16k 16k"},
	{Name: "punch-part", About: "punch a hole inside a block", Setup: file, Do: "punch f 5k 1k"},
	{Name: "zero", About: "zero a range of whole blocks", Setup: file, Do: "zero f 16k 16k"},
	{Name: "falloc", About: "allocate beyond EOF", Setup: file, Do: "falloc f 64k 64k"},
	{Name: "falloc-keep", About: "allocate beyond EOF, and keep the size", Setup: file, Do: "keep f 64k 64k"},
	{Name: "fsync-clean", About: "fsync of a file that is durable", Setup: file, Do: "fsync f"},
	{Name: "fsync-fast", About: "fsync of a dirty block: log", Setup: file + "fsync f; write f 4k 4k", Do: "fsync f"},
	{Name: "fsync-new", About: "fsync of a new file", Setup: "sync; create f; write f 0 4k", Do: "fsync f"},
	{Name: "fsync-nocow", About: "fsync of a dirty block of a NOCOW file", Setup: nocow + "write f 4k 4k", Do: "fsync f"},
	{Name: "fsync-prealloc", About: "fsync of preallocated space beyond EOF", Setup: file + "fsync f; keep f 64k 64k", Do: "fsync f"},
	{Name: "fsync-twice", About: "fsync of two files one after the other: the second joins the log",
		Setup: file + "create g; write g 0 64k; sync; write f 4k 4k; write g 4k 4k", Do: "fsync f; fsync g"},
	{Name: "fsync-dir", About: "fsync of a directory with a new file", Setup: "mkdir d; sync; create d/f", Do: "fsync d"},
	{Name: "fsync-renamed", About: "fsync after rename", Setup: file + "rename f g; close f; write g 0 4k", Do: "fsync g"},
	{Name: "fsync-linked", About: "fsync of a file with a new name", Setup: file + "link f g", Do: "fsync f"},
	{Name: "create", About: "create a file", Setup: file, Do: "create g"},
	{Name: "mkdir", About: "make a directory", Setup: file, Do: "mkdir d"},
	{Name: "rmdir", About: "remove a directory", Setup: file + "mkdir d; sync", Do: "rmdir d"},
	{Name: "link", About: "one more name", Setup: file, Do: "link f g"},
	{Name: "unlink", About: "remove the last name of a file, which goes", Setup: file + "close f", Do: "unlink f"},
	{Name: "rename", About: "rename in one directory", Setup: file, Do: "rename f g"},
	{Name: "rename-over", About: "rename over another file, which goes", Setup: file + "create g; write g 0 64k; sync; close g", Do: "rename f g"},
	{Name: "symlink", About: "make a symbolic link", Setup: file, Do: "symlink f g"},
	{Name: "chmod", About: "change the mode", Setup: file, Do: "chmod f"},
	{Name: "setxattr", About: "set an attribute", Setup: file, Do: "setxattr f"},
	{Name: "reflink", About: "clone a file", Setup: file + "create g; sync", Do: "reflink f g"},
	{Name: "snapshot", About: "snapshot of the top directory", Setup: file, Do: "snapshot s"},
	{Name: "commit-empty", About: "sync with nothing changed", Setup: file, Do: "sync"},
	{Name: "commit", About: "sync after chmod: commit alone", Setup: file + "chmod f", Do: "sync"},
	{Name: "sync-dirty", About: "sync with a dirty block: writeback and commit", Setup: file + "write f 4k 4k", Do: "sync"},
	{Name: "enospc", About: "buffered write without space", Setup: "create f; create g; fill f; sync", Do: "! write g 0 64m", Size: 128 << 20},
}

// Find gives the operation of the name, or nil.
func Find(name string) *Op {
	for i := range Ops {
		if Ops[i].Name == name {
			return &Ops[i]
		}
	}
	return nil
}
