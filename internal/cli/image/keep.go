package image

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

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
