package image

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

// keepFlags say what a copy leaves out.
type keepFlags struct{ owner, xattr, flags, special bool }

func (k *keepFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&k.owner, "no-owner", false, "leave owners out, with setuid, setgid and capabilities")
	f.BoolVar(&k.xattr, "no-xattr", false, "leave extended attributes out, with access control lists and capabilities")
	f.BoolVar(&k.flags, "no-flags", false, "leave the flags of chattr out")
	f.BoolVar(&k.special, "no-special", false, "leave devices, pipes and sockets out")
}

// keep is what is kept of all.
func (k *keepFlags) keep(all transfer.Keep) transfer.Keep {
	all.Owners = all.Owners && !k.owner
	all.Xattrs = all.Xattrs && !k.xattr
	all.Flags = all.Flags && !k.flags
	all.Special = all.Special && !k.special
	return all
}

const ownerFromHelp = "owners, modes and devices are what fakeroot has said of the files: its save file, of fakeroot -s FILE"

// ownersFrom reads a save file of fakeroot; without a name it is nil. Under fakeroot the file is
// wanted, if owners of the host are what goes into the image: it warns.
func (a verbs) ownersFrom(name string, wanted bool) (*transfer.Fakeroot, error) {
	if name == "" {
		if wanted && strings.Contains(os.Getenv("LD_PRELOAD"), "libfakeroot") && os.Getenv("FAKEROOTKEY") != "" {
			fmt.Fprintln(a.Err, "btrlab: warning: owners are those of the host, fakeroot's are not seen here: want --owner-from FILE of btrlab mkfs or put after fakeroot -s FILE")
		}
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	owners, err := transfer.ReadFakeroot(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return owners, nil
}

// warnOwners warns of a save file of fakeroot that has nothing of the files that were copied.
func (a verbs) warnOwners(name string, owners *transfer.Fakeroot) {
	if owners.Unused() {
		fmt.Fprintf(a.Err, "btrlab: warning: %s names none of the files by its inode: they were copied after fakeroot, or are others\n", app.Shown(a.Err, name))
	}
}

// parseOwner reads UID:GID; nothing is nil.
func parseOwner(s string) (*fs.Owner, error) {
	if s == "" {
		return nil, nil
	}
	u, g, ok := strings.Cut(s, ":")
	uid, uerr := strconv.ParseUint(u, 10, 32)
	gid, gerr := strconv.ParseUint(g, 10, 32)
	if !ok || uerr != nil || gerr != nil {
		return nil, fmt.Errorf("owner %q, want two numbers, as 1000:1000", s)
	}
	return &fs.Owner{UID: uint32(uid), GID: uint32(gid)}, nil
}
