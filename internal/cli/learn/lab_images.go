package learn

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/wrecks"
)

// labImages writes the broken images of a student.
func (a verbs) labImages() *cobra.Command {
	var student string
	cmd := &cobra.Command{
		Use: "images N DIR", Short: "write the broken images of lab 15", Args: cobra.ExactArgs(2),
		Long: `Images writes the images of lab 15 into a folder, which it makes: one for each class of damage. They are made from the id that
--student gives, the same ones each time, and the lab is graded by them. A file that is there is not overwritten.`,
		Example: "  btrlab lab images 15 broken --student ada",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, _, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			if l.Try != judges.Images {
				return app.Usagef(cmd, "lab %d has no images", l.N)
			}
			if strings.TrimSpace(student) == "" {
				return app.Usagef(cmd, "--student %q, want the id that the lab is graded with", student)
			}
			if err := os.MkdirAll(args[1], 0o755); err != nil {
				return err
			}
			for _, c := range wrecks.Classes {
				im, err := wrecks.Make(student, c)
				if err != nil {
					return err
				}
				if err := a.writeImage(filepath.Join(args[1], c.Name+".img"), im.Dev); err != nil {
					return err
				}
			}
			fmt.Fprintln(a.Out, prose.Command("next: ", "btrlab check "+prose.ShellWord(filepath.Join(args[1], wrecks.Classes[0].Name+".img")), a.Width()))
			return nil
		},
	}
	cmd.Flags().StringVar(&student, "student", "", "the student's id")
	return cmd
}

// writeImage writes what is on a device to a new file, without its holes.
func (a verbs) writeImage(path string, d blockdev.Device) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	if err := f.Truncate(d.Size()); err != nil {
		return err
	}
	const block = 64 << 10
	b := make([]byte, block)
	for off := int64(0); off < d.Size(); off += block {
		p := b[:min(block, d.Size()-off)]
		if err := blockdev.Read(a.Task, d, p, off); err != nil {
			return err
		}
		if strings.Trim(string(p), "\x00") == "" {
			continue
		}
		if _, err := f.WriteAt(p, off); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(a.Out, path)
	return err
}
