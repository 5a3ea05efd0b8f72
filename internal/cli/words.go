package cli

import (
	"maps"
	"slices"
	"strings"
)

// foreignWords are verbs of btrfs, guestfish, debugfs, builders of images, mkfs and the shell, with
// what does that here.
var foreignWords = map[string]string{
	"filesystem resize": "resize", "filesystem defragment": "nothing: extents stay where they are written",
	"filesystem sync": "sh, with the line sync", "filesystem mkswapfile": "fallocate",
	"filesystem": "info, df, du, resize or label", "show": "info", "usage": "df, with --devices for the table", "fsinfo": "info", "statfs": "df", "stats": "info", "dumpe2fs": "info",
	"inspect-internal": "inspect, and dump for the structures", "show_super_stats": "dump super",
	"dump_super": "dump super", "ncheck": "inspect inode-resolve", "icheck": "inspect logical-resolve", "testb": "inspect logical-resolve",
	"restore": "get -r, which leaves out what cannot be read", "rdump": "get -r", "dump_inode": "get", "extract": "get -r", "export": "get -r, or get --tar, or serve",
	"nbd": "serve --nbd", "nbdkit": "serve --nbd", "qemu-nbd": "serve --nbd", "nbd-server": "serve --nbd",
	"copy-out": "get", "download": "get", "read": "cat", "type": "cat", "more": "cat", "less": "cat",
	"import": "put -r, or mkfs --rootdir", "copy-in": "put", "upload": "put", "add": "put", "cp": "sh, with the line cp; put and get; or reflink within an image",
	"copy": "put, get, or reflink within an image", "clone": "reflink", "rsync": "put -r or get -r", "tar": "get --tar, put --from-tar or mkfs --from-tar",
	"format": "mkfs", "make": "mkfs", "create": "mkfs, touch, or subvolume create", "new": "mkfs",
	"btrfstune": "uuid", "tune2fs": "uuid or label", "fsid": "uuid", "resize2fs": "resize", "shrink": "resize IMAGE min", "grow": "resize",
	"fsck": "check", "verify": "check", "repair": "check, which repairs nothing, or rescue zero-log",
	"zero-log": "rescue zero-log", "defrag": "nothing: extents stay where they are written",
	"qgroup": "quota", "replace": "device replace",
	"umount": "sh, with the line umount; umount(8) ends a mount, and each other verb commits", "list": "ls", "dir": "ls -l", "find": "ls -R", "cd": "nothing: paths are whole",
	"delete": "rm", "kill_file": "rm", "rmdir": "rm -r", "symlink": "ln -s", "link": "ln",
	"hardlink": "ln", "md": "mkdir", "setfattr": "setxattr", "ea_list": "getxattr", "ea_get": "getxattr", "ea_set": "setxattr",
	"attr": "getxattr or setxattr", "getfacl": "getxattr", "set_inode_field": "chmod, chown or touch", "sif": "chmod, chown or touch, or edit for any field",
	"fallocate-punch": "fallocate --punch-hole", "punch": "fallocate --punch-hole",
	"guestfish": "sh", "mkosi": "mkfs --rootdir or --plan", "genimage": "mkfs --rootdir or --plan",
	"systemd-repart": "mkfs --rootdir or --plan", "repart": "mkfs --rootdir or --plan", "wic": "mkfs --rootdir or --plan", "build": "mkfs --rootdir or --plan",
	"rootfs": "mkfs --rootdir", "populate": "mkfs --rootdir, or put -r", "summary": "info", "clean": "nothing: an image is one file",
	"boot": "serve --nbd, for a virtual machine", "vm": "serve --nbd, for a virtual machine", "qemu": "serve --nbd, for a virtual machine",
	"btrfs-convert":           "mkfs --rootdir with the files of the other file system",
	"btrfs-filesystem-resize": "resize", "btrfs-balance": "balance",
	"list-filesystems": "info, with --partition for one of a disk", "launch": "nothing: each verb opens its image", "open": "nothing: each verb opens its image, and sh keeps one open",
	"close": "nothing: each verb closes its image", "exit": "nothing: only sh has it", "params": "info", "features": "info", "dirty": "nothing: each verb commits",
	"tar-in": "put --from-tar", "tgz-in": "put --from-tar, of what gzip -d writes", "tar-out": "get --tar", "tgz-out": "get --tar, and gzip",
	"btrfs-corrupt-block": "edit", "corrupt-block": "edit", "vi": "get, an editor and put, or mount", "nano": "get, an editor and put, or mount", "sparse": "mkfs --size", "part-disk": "nothing: a partition is taken by --partition",
	"find0": "ls -R", "cp-a": "sh, with the line cp -a; put and get; or reflink within an image", "cp-r": "put -r or get -r", "truncate-size": "truncate --size",
	"zerofree": "trim", "fstrim": "trim", "discard": "trim", "virt-sparsify": "trim",
	"filesize": "stat", "exists": "stat", "is-file": "stat", "is-dir": "stat", "checksum": "cat, and a sum of its output", "head": "cat, and head", "tail": "cat, and tail", "grep": "cat, and grep",
	"wc": "cat, and wc", "strings": "cat, and strings", "hexdump": "cat, and hexdump", "mkfifo": "mknod IMAGE:/path p", "readlink": "stat", "realpath": "stat",
	"blocks": "inspect offset", "bmap": "inspect offset", "extents": "inspect offset, or dump tree", "dump_extents": "inspect offset, or dump tree",
	"undel": "rescue older-root, which has files of before", "lsdel": "rescue older-root, which has files of before", "freefrag": "df, or dump free-space", "chroot": "nothing: paths are whole",
	"pwd": "nothing: paths are whole", "lcd": "nothing: paths are whole", "statvfs": "df", "imap": "inspect inode-resolve", "inode_dump": "dump tree", "clri": "rm",
	"modify_inode": "chmod, chown or touch", "set_super_value": "uuid, label or edit", "inspect-os": "nothing: cat reads what is in the image", "e2image": "image dump",
	"e2fsck": "check", "blkid": "info", "lsblk": "info", "wipefs": "mkfs --force", "losetup": "nothing: no loop device is needed", "parted": "nothing: a partition is taken by --partition",
	"fdisk": "nothing: a partition is taken by --partition", "dd": "write, or cat", "swapon": "fallocate", "perf": "bench --lockprofile -", "fsync": "sh, with the line fsync",
	"logdump": "dump log", "journal": "dump log", "benchmark": "bench", "run": "bench", "shell": "sh", "debugfs": "sh",
}

// foreignWord says what does here what the words mean elsewhere, "" if that is not known.
func foreignWord(args []string) string {
	word := args[0]
	if word == "fi" || word == "filesys" {
		word = "filesystem"
	}
	if len(args) > 1 {
		for _, full := range slices.Sorted(maps.Keys(foreignWords)) {
			if first, second, ok := strings.Cut(full, " "); ok && first == word && strings.HasPrefix(second, args[1]) && args[1] != "" {
				return foreignWords[full]
			}
		}
	}
	return foreignWords[word]
}
