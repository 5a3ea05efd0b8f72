package compress

import (
	"strings"

	"btrlab/internal/format"
)

// Property reads a value of the property btrfs.compression: zlib, lzo or zstd, with anything after
// the name, which Linux takes and makes nothing of (a level among it); none or no; and nothing,
// which is the default. ok is false for any other value.
//
// Models prop_compression_validate() and btrfs_compression_is_valid_type().
func Property(value string) (kind uint8, ok bool) {
	for kind := uint8(format.CompressZlib); kind <= format.CompressZstd; kind++ {
		if strings.HasPrefix(value, Name(kind)) {
			return kind, true
		}
	}
	return format.CompressNone, value == "" || value == "none" || value == "no"
}

// PropertyFlags are the inode flags that the value of the property btrfs.compression brings with
// it; FlagsOfProperty are all that it changes. Models prop_compression_apply().
func PropertyFlags(value string) uint64 {
	switch kind, _ := Property(value); {
	case kind != format.CompressNone:
		return format.InodeCompress
	case value != "":
		return format.InodeNoCompress
	}
	return 0
}

// FlagsOfProperty are the inode flags that go with the property btrfs.compression.
const FlagsOfProperty = format.InodeCompress | format.InodeNoCompress
