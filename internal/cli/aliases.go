package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"btrlab/internal/cli/image"
	"btrlab/internal/cli/serve"
)

// aliases are words of btrfs, guestfish, fio and the shell that mean here what they mean there: the
// first words of a command line, and what stands in their place. What means something else is in
// foreignWords. The last one was a word of ours.
var aliases = []struct{ typed, verb string }{
	{"fio", "bench"}, {"version", "--version"}, {"ll", "ls -l"}, {"del", "rm"}, {"unlink", "rm"}, {"move", "mv"}, {"rename", "mv"},
	{"subvol", "subvolume"}, {"sub", "subvolume"}, {"snap", "snapshot"}, {"subvolume snapshot", "snapshot"},
	{"filesystem df", "df"}, {"filesystem usage", "df"}, {"filesystem show", "info"}, {"filesystem du", "du"}, {"filesystem label", "label"},
	{"qgroup show", "quota show"}, {"inspect-internal dump-super", "dump super"}, {"inspect-internal dump-tree", "dump tree"},
	{"inspect-internal inode-resolve", "inspect inode-resolve"}, {"scrub start", "scrub"}, {"dump-super", "dump super"}, {"dump-tree", "dump tree"},
	{"mkdir-p", "mkdir -p"}, {"rm-rf", "rm -rf"}, {"rm-f", "rm -f"}, {"ln-s", "ln -s"}, {"df-h", "df"}, {"lstat", "stat"}, {"fsck.btrfs", "check"}, {"btrfs-fsck", "check"},
	{"btrfs-subvolume-list", "subvolume list"}, {"btrfs-subvolume-create", "subvolume create"}, {"btrfs-subvolume-delete", "subvolume delete"},
	{"btrfs-subvolume-snapshot", "snapshot"}, {"btrfs-filesystem-show", "info"}, {"lsxattr", "getxattr"}, {"getfattr", "getxattr"},
	{"explore merge", "merge"}, // as it was called while only searches had shards
}

// groups are the words of btrfs that it takes shortened, whole: fi df, sub list.
var groups = []string{"filesystem", "inspect-internal", "qgroup", "subvolume"}

// isFioName reports whether a word of fio's command line begins a job.
func isFioName(word string) bool {
	key, _, _ := strings.Cut(word, "=")
	return key == "--name" || key == "-name"
}

// dumper is btrfs-image.
const dumper = "btrfs-image"

// dumperArgs is our command line for one of btrfs-image: -r, -m and -o restore, and write over what
// is there. The number of threads means nothing here.
func dumperArgs(args []string) []string {
	list, verb := []string{}, "dump"
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if len(arg) < 2 || arg[0] != '-' || arg[1] == '-' {
			list = append(list, arg)
			continue
		}
		for rest := arg[1:]; rest != ""; {
			c, value := rest[:1], rest[1:]
			rest = value
			if c == "c" || c == "t" { // the value is the rest of the word, or the next one
				if rest = ""; value == "" && i+1 < len(args) {
					i++
					value = args[i]
				}
			}
			switch c {
			case "r", "m":
				verb = "restore"
			case "o":
				verb, list = "restore", append(list, "-o")
			case "c":
				list = append(list, "-c"+value)
			case "t":
			default:
				list = append(list, "-"+c)
			}
		}
	}
	if verb == "restore" {
		list = append([]string{"--force"}, list...)
	}
	return append([]string{"image", verb}, list...)
}

// Args are the arguments of a program that is called as argv says: by the name mount.fuse.btrlab,
// mkfs.btrfs or btrfs-image it takes the place of that program.
func Args(argv []string) []string {
	if len(argv) > 0 && filepath.Base(argv[0]) == dumper {
		return append([]string{dumper}, argv[1:]...)
	}
	if len(argv) > 0 && filepath.Base(argv[0]) == image.ProgsName {
		return append([]string{image.ProgsName}, argv[1:]...)
	}
	return serve.HelperArgs(argv)
}

// isProgs reports whether the command line is one of mkfs.btrfs.
func isProgs(args []string) bool { return len(args) > 0 && args[0] == image.ProgsName }

// aliased is the command line with our words for theirs. Run, with a job file after it, is bench.
func aliased(args []string) []string {
	if len(args) == 0 {
		return args
	}
	if (args[0] == "df" || args[0] == "du") && len(args) > 2 {
		// their sizes are for people as they are
		args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "-h" })
	}
	if i := slices.Index(args, "--progs"); args[0] == "mkfs" && i > 0 {
		return slices.Concat([]string{image.ProgsName}, args[1:i], args[i+1:])
	}
	if args[0] == "btrfs" && len(args) > 1 {
		args = args[1:]
	}
	if args[0] == dumper {
		return dumperArgs(args[1:])
	}
	if args[0] == "fio" && slices.ContainsFunc(args, isFioName) && !slices.Contains(args, "--") {
		return append([]string{"bench", "--"}, args[1:]...)
	}
	words := slices.Clone(args[:min(len(args), 2)])
	if words[0] == "run" && len(args) > 1 && strings.HasSuffix(args[1], ".fio") {
		return append([]string{"bench"}, args[1:]...)
	}
	for _, g := range groups {
		if len(words[0]) >= 2 && strings.HasPrefix(g, words[0]) {
			words[0] = g
		}
	}
	for n := len(words); n > 0; n-- {
		typed := strings.Join(words[:n], " ")
		for _, a := range aliases {
			if a.typed == typed {
				return append(strings.Fields(a.verb), args[n:]...)
			}
		}
	}
	if words[0] != args[0] && words[0] == "subvolume" {
		return append(words[:1], args[1:]...)
	}
	return args
}
