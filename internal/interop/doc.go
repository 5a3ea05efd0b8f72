// Package interop is what the tests share in which another program is the judge: the commands of
// the host and ours, mounts in a loop, trees of files and how two are compared, and measurements in
// alternating rounds. Only tests import it, and they are in three folders:
//
//   - kernel: the Linux of this machine, and others in qemu, mounts, writes, replays and answers what
//     ours does. The numbers against it are there.
//   - progs: images in turns of both, and what mkfs.btrfs, btrfs check, receive and btrfs-convert
//     make or say of them.
//   - mount: Linux as the client of ours, by FUSE and NBD.
//
// They need root, loop devices and btrfs-progs; package need says what happens where one is
// missing.
package interop
