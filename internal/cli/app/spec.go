package app

import (
	"os"
	gopath "path"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/format"
	"btrlab/internal/fs"
)

// splitSpec takes IMAGE:/path apart. The image is the longest prefix before a ":/" that names a
// file, so that both names may hold colons.
func splitSpec(spec string) (image, path string, ok bool) {
	first := -1
	for i := 0; i+1 < len(spec); i++ {
		if spec[i] != ':' || spec[i+1] != '/' || i == 0 {
			continue
		}
		if first < 0 {
			first = i
		}
		if st, err := os.Stat(spec[:i]); err == nil && !st.IsDir() {
			return spec[:i], gopath.Clean(spec[i+1:]), true
		}
	}
	if first < 0 {
		return spec, "/", false
	}
	return spec[:first], gopath.Clean(spec[first+1:]), true
}

// SplitSpec is splitSpec of a verb's argument; in a shell that is a path of the open image.
func (a *Run) SplitSpec(spec string) (image, path string, ok bool) {
	if a.Open != nil && gopath.IsAbs(spec) {
		o, path := a.Open.at(gopath.Clean(spec))
		return o.Name, path, true
	}
	if a.Open != nil {
		return a.Open.Name, "/", false
	}
	return splitSpec(spec)
}

// FileSpec is SplitSpec for verbs that need a path in the image.
func (a *Run) FileSpec(cmd *cobra.Command, spec string) (image, path string, err error) {
	image, path, ok := a.SplitSpec(spec)
	if !ok && a.Open != nil {
		return "", "", Usagef(cmd, "%q is no path in the image, want /path", spec)
	}
	if !ok {
		return "", "", Usagef(cmd, "%q names no file in an image, want IMAGE:/path", spec)
	}
	return image, path, nil
}

// CompleteSpec completes IMAGE, then :/path inside it.
func (a *Run) CompleteSpec(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	image, _, ok := a.SplitSpec(word)
	if !ok {
		return nil, cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveNoSpace
	}
	typed := word[len(image)+1:]
	dir, base := gopath.Split(typed)
	var names []string
	err := a.ReadFS(image, func(x *fs.FS) error {
		list, err := x.ReadDir(a.Task, dir)
		for _, e := range list {
			if !strings.HasPrefix(e.Name, base) {
				continue
			}
			name := image + ":" + dir + e.Name
			if e.Type == format.FtDir {
				name += "/"
			}
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// TwoPaths reads IMAGE:/a and /b or IMAGE:/b.
func (a *Run) TwoPaths(cmd *cobra.Command, args []string) (image, from, to string, err error) {
	image, from, err = a.FileSpec(cmd, args[0])
	if err != nil {
		return "", "", "", err
	}
	to = args[1]
	if other, path, ok := a.SplitSpec(to); ok {
		if other != image {
			return "", "", "", Usagef(cmd, "%s and %s are two images, want one", image, other)
		}
		to = path
	}
	if !gopath.IsAbs(to) {
		return "", "", "", Usagef(cmd, "%q is no path in the image, want /path", args[1])
	}
	return image, from, gopath.Clean(to), nil
}
