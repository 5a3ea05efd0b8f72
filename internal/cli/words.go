package cli

import (
	"maps"
	"slices"
	"strings"
)

// foreignWords are verbs of btrfs, debugfs, mkfs and the shell, with what does that here.
var foreignWords = map[string]string{
	"filesystem resize": "resize",
	"filesystem sync":   "sh, with the line sync", "filesystem mkswapfile": "fallocate",
	"filesystem": "info, df, du, resize or label", "show": "info", "usage": "df", "fsinfo": "info", "statfs": "df", "stats": "info", "dumpe2fs": "info",
	"inspect-internal": "inspect, and dump for the structures", "show_super_stats": "dump super",
	"dump_super": "dump super", "ncheck": "inspect inode-resolve", "icheck": "inspect logical-resolve", "testb": "inspect logical-resolve",
	"restore": "get -r, which leaves out what cannot be read", "rdump": "get -r", "dump_inode": "get", "extract": "get -r", "export": "get -r, or get --tar, or serve",
	"nbd": "serve --nbd", "nbdkit": "serve --nbd", "qemu-nbd": "serve --nbd", "nbd-server": "serve --nbd",
	"copy-out": "get", "download": "get", "read": "cat", "type": "cat", "more": "cat", "less": "cat",
	"import": "put -r, or mkfs --rootdir", "copy-in": "put", "upload": "put", "add": "put", "cp": "put, get, or reflink within an image",
	"copy": "put, get, or reflink within an image", "clone": "reflink", "rsync": "put -r or get -r", "tar": "get --tar, put --from-tar or mkfs --from-tar",
	"mkfs.btrfs": "mkfs", "format": "mkfs", "make": "mkfs", "create": "mkfs, touch, or subvolume create", "new": "mkfs",
	"btrfstune": "uuid", "tune2fs": "uuid or label", "fsid": "uuid", "resize2fs": "resize", "shrink": "resize IMAGE min", "grow": "resize",
	"fsck": "check", "scrub": "check, which reads all data too", "verify": "check", "repair": "check, which repairs nothing, or rescue zero-log",
	"zero-log": "rescue zero-log", "balance": "nothing: chunks are made as they are needed", "defrag": "nothing: no verb moves extents",
	"qgroup": "quota", "device": "the flag --device",
	"umount": "nothing: each verb commits, and umount(8) ends a mount", "list": "ls", "dir": "ls -l", "find": "ls -R", "cd": "nothing: paths are whole",
	"delete": "rm", "kill_file": "rm", "rmdir": "rm -r", "symlink": "ln -s", "link": "ln",
	"hardlink": "ln", "md": "mkdir", "setfattr": "setxattr", "ea_list": "getxattr", "ea_get": "getxattr", "ea_set": "setxattr",
	"attr": "getxattr or setxattr", "getfacl": "getxattr", "set_inode_field": "chmod, chown or touch", "sif": "chmod, chown or touch",
	"fallocate-punch": "fallocate --punch-hole", "punch": "fallocate --punch-hole",
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
