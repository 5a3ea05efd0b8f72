// Package image is the verbs for images and the files in them.
package image

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
)

// verbs makes the verbs of one run.
type verbs struct{ *app.Run }

// Images are the verbs for a whole image.
func Images(a *app.Run) []*cobra.Command {
	v := verbs{a}
	return append(v.onOpen(), v.mkfs(), v.mkfsProgs(), v.inspect(), v.edit(), v.balance(), v.device(), v.trim(), v.resize(), v.label(), v.uuid(), v.rescue(), v.image())
}

// Files are the verbs for the files in an image.
func Files(a *app.Run) []*cobra.Command {
	v := verbs{a}
	return append(v.small(), v.ls(), v.tree(), v.du(), v.stat(), v.cat(), v.put(), v.get(), v.rm(), v.write(), v.fallocate(), v.chattr(), v.lsattr(), v.getxattr(),
		v.property(), v.reflink(), v.subvolume(), v.send(), v.receive())
}

// onOpen are the verbs for a whole image that work on an open one.
func (a verbs) onOpen() []*cobra.Command {
	return []*cobra.Command{a.check(), a.scrub(), a.info(), a.df(), a.dump(), a.quota()}
}

// OnOpen are the verbs that sh has for the image that it has open, and for the files in it.
func OnOpen(a *app.Run) (images, files []*cobra.Command) {
	v := verbs{a}
	return v.onOpen(), append(Files(a), v.cp())
}
