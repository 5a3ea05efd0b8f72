// Package interop holds the tests in which Linux is the judge: images of ours go through btrfs
// check, the kernel's mount, scrub and writes, and images that mkfs.btrfs made and Linux wrote are
// read, checked and written by us.
//
// They need root, loop devices and btrfs-progs; package need says what happens where one is
// missing.
package interop
