package fstest

import (
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
	return list
}
