package fstest

import (
	"fmt"
	"strings"

	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
)

// Variant is a kind of image that is not mkfs's default.
type Variant struct {
	Name string
	Option
}

// Variants are the kinds of images that are written besides the default.
func Variants() (list []Variant) {
	for _, name := range format.CsumTypes()[1:] {
		list = append(list, Variant{name, MkfsOptions(func(o *mkfs.Options) {
			var err error
			o.Csum, err = format.ParseCsumType(name)
			NoError(err)
		})})
	}
	for _, n := range []int{4 << 10, 64 << 10} {
		list = append(list, Variant{fmt.Sprintf("nodesize %d", n), MkfsOptions(func(o *mkfs.Options) { o.NodeSize = n })})
	}
	return append(list, without("skinny-metadata"), without("no-holes"))
}

// without is the kind of image that lacks features.
func without(features ...string) Variant {
	var names []string
	for _, f := range features {
		names = append(names, "^"+f)
	}
	return Variant{strings.Join(names, ","), MkfsOptions(func(o *mkfs.Options) { NoError(o.SetFeatures(names)) })}
}
