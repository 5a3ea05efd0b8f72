// Package crash cuts the power anywhere in a workload and says what is lost that was promised.
//
// A Recorder runs operations one by one on a file system over a recording device; the image below
// is never written. After each operation it looks at the whole tree: a version. From the recording
// follow the crash states: at each flush, everything that a flush before it covered is on the
// medium, and of the writes since then any part (Recording.States). A state is an overlay of the
// image: nothing is copied. Judge checks it with progs/check, opens it for writing, which replays a
// log and ends half-done deletes, checks it again, and compares it with the versions. Then the
// power goes a second time, while the first commit after the crash is written.
//
// What is promised is the table Promises. With v the version at a crash and in the operation under
// way:
//
//   - after sync every name and every inode is as in a version from that one on;
//   - after fsync of a file all of it is: bytes, size, attributes, mode, owner, flags, times and
//     names; after fdatasync bytes, size, attributes and names; after fsync of a directory its
//     entries are. Each may come from another of the versions since;
//   - an entry of a directory leads to the inode of one such version, an inode has as many names as
//     in one: after a rename the old one or the new. A directory above that was renamed before may
//     have its old name;
//   - a time may also be a stamp that the clock gave to an operation since, which no version shows;
//   - a block of a file has the bytes of one such version, or is a hole where one such version has
//     no bytes: nothing that nobody wrote. The blocks of a NODATACOW file may mix versions, and the
//     rest of a block that the file ended in may be as it ever was, when it has grown since and was
//     not synced.
//
// A state that breaks it is made smaller until no lost write can be given back (Shrink).
//
// Model: what a disk with a volatile cache may leave. Writes reach the medium in any order and in
// part, by blocks of 4 KiB or, where such a block is torn, by sectors of 512 bytes; only a
// superblock is written whole, as the kernel trusts (labs/reference 10.1). Two writes of one place
// that swap are the state in which the later one is lost. Difference to CrashMonkey (OSDI 2018):
// states are not only those at persistence points, and the judge compares with all versions, not
// with one.
package crash
