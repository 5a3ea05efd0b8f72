package cli

import (
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/testing/need"
)

// The examples of the verbs that work on an image are run by a shell, each beside an image and host
// files that have what the examples name. It must end well, and what it leaves must be clean.
func TestImageExamples(t *testing.T) {
	need.Long(t)
	if testing.Short() {
		t.Skip("starts a hundred processes; TestExamples looks at the flags and arguments")
	}
	bin := filepath.Dir(program(t))
	template, dir := t.TempDir(), t.TempDir()
	shell := func(where, line string) (code int, out string) {
		c := exec.Command("sh", "-c", line)
		c.Dir, c.Env = where, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		b, _ := c.CombinedOutput() // the exit code says it
		return c.ProcessState.ExitCode(), string(b)
	}
	// The names are those of the examples: on the host, then in the image, by btrlab sh.
	if code, out := shell(template, `set -e
mkdir -p src/sub rootfs/etc; echo text | tee notes.txt src/a > src/sub/b
printf '/dev d 755 0 0 - - - - -\n/dev/tty c 666 0 5 4 0 0 1 6\n' > devices.txt
printf '070707%042d%011d000013%011dTRAILER!!!\0' 0 0 0 > initrd.cpio
echo 'ls -l /' | tee script > /dev/null
printf 'touch /new\nfsync /new\n' > ops.txt
printf './etc type=dir uid=0\n' > owners.mtree
printf "dev=%x,ino=%s,mode=40755,uid=1,gid=2,nlink=2,rdev=0\n" $(stat -c '%d %i' rootfs/etc) > fakeroot.save
printf '[w]\nrw=randwrite\nbs=4k\nsize=64k\nfsync=4\n' > job.fio
btrlab mkfs -q --size 256M disk.img
btrlab put notes.txt disk.img:/draft.txt; btrlab put --nocow notes.txt disk.img:/file; btrlab put -r src disk.img:/src
cat > made <<END
mkdir -p /etc /tmp/deep /usr
subvolume create /home /old /@
mkdir /backup /vm
snapshot / /before
snapshot /home /snap
setxattr user.origin mirror /file
touch /log /a /b /etc/passwd /etc/x.conf
write --length 2M /a
write --data root /etc/passwd
write --length 1M /file
reflink /a /vm.img
quota enable
subvolume create /sub
snapshot -r /sub /backup/monday
touch /sub/new
snapshot -r /sub /backup/tuesday
END
btrlab sh disk.img made
btrlab mkfs -q --size 128M other.img
mkdir @; cp notes.txt @; tar cf release.tar @; rm -r @
cp --sparse=always disk.img old.img
btrlab send -f snap.stream disk.img:/backup/monday
btrlab image dump disk.img disk.dump
btrlab mkfs -q --size 128M --device b.img a.img
btrlab image dump a.img b.img both.dump`); code != 0 {
		t.Fatalf("the image of the examples: exit code %d\n%s", code, out)
	}
	// The undo file of a repair that changed nothing.
	undo, err := os.Create(filepath.Join(template, "disk.img.undo"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(rescue.NewUndoWriter(undo).Close(), undo.Close()); err != nil {
		t.Fatal(err)
	}
	// What an example wants otherwise than the image is.
	const paused = "btrlab touch disk.img:/big && btrlab fallocate --length 100M disk.img:/big && ! btrlab balance start --data=convert=dup disk.img && btrlab rm disk.img:/big"
	before := map[string]string{
		"btrlab subvolume create disk.img:/home": "btrlab subvolume delete disk.img:/home",
		"btrlab mkfs ":                           "rm disk.img",
		"btrlab mkfs --partition": `truncate -s 200M disk.img
printf '\203\0\0\0\0\10\0\0\0\10\0\0\0\0\0\0\203\0\0\0\0\20\0\0\0\340\5\0' | dd of=disk.img bs=1 seek=450 conv=notrunc status=none
printf '\125\252' | dd of=disk.img bs=1 seek=510 conv=notrunc status=none`,
		"btrlab uuid ":                       "cp --sparse=always disk.img copy.img",
		"btrlab quota enable disk.img":       "btrlab quota disable disk.img",
		"btrlab snapshot disk.img:/ /before": "btrlab subvolume delete disk.img:/before",
		"btrlab ln disk.img:/a /b":           "btrlab rm disk.img:/b",
		"disk.img:/doc":                      "mkdir -p usr/share/doc; touch usr/share/doc/it",
		"device remove a.img --device b.img": "btrlab device add a.img --device b.img c.img --size 128M",
		"device remove a.img --device c.img": "btrlab device add a.img --device b.img c.img --size 128M && rm b.img",
		"device replace a.img --degraded":    "rm b.img",
		"balance resume":                     paused,
		"balance cancel":                     paused,
	}
	short := strings.NewReplacer("small.img", "disk.img", "/usr/share/doc", "usr/share/doc", "/tmp/src", "copy", "put -r src /src", "put src/a /src/c", "--bounded 1", "--bounded 1 --shard 0/50 --json", "--bounded 2 --shard 3/64", "--bounded 2 --shard 3/3000",
		"13631488", `$(btrlab dump tree fs disk.img | sed -n 's/.*disk byte \([1-9][0-9]*\).*/\1/p' | head -1)`)
	ran := map[string]int{}
	run := func(verb, line string) {
		if strings.Contains(line, "sh --at") { // on a mount: internal/interop
			return
		}
		ran[verb]++
		if code, out := shell(dir, "rm -rf ./* && cp -R --sparse=always "+template+"/. ."); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		for _, part := range slices.Sorted(maps.Keys(before)) {
			if strings.Contains(line, part) {
				if code, out := shell(dir, before[part]); code != 0 {
					t.Fatalf("%s: %s: exit code %d\n%s", line, before[part], code, out)
				}
			}
		}
		want := 0
		if strings.Contains(line, "--wrong") || strings.Contains(line, "dump log") {
			want = app.ExitFailed // it finds what is lost; there is no log
		}
		if code, out := shell(dir, short.Replace(line)); code != want {
			t.Errorf("%s: exit code %d, want %d\n%s", line, code, want, out)
		}
		if code, out := shell(dir, "btrlab check disk.img"); code != 0 {
			t.Errorf("%s leaves an image that is not clean\n%s", line, out)
		}
	}
	root := newCmdline(nil, io.Discard, io.Discard).commands()
	for _, c := range root.Commands() {
		if c.GroupID != "image" && c.GroupID != "files" && c.Name() != "crash" {
			continue
		}
		if c.Name() == "mount" || c.Name() == "serve" { // they stay: internal/interop
			continue
		}
		var walk func(cmd *cobra.Command)
		walk = func(cmd *cobra.Command) {
			for line := range strings.Lines(cmd.Example) {
				run(c.Name(), strings.TrimSpace(line))
			}
			for _, sub := range cmd.Commands() {
				walk(sub)
			}
		}
		walk(c)
	}
	for _, v := range []string{"mkfs", "dump", "quota", "balance", "device", "rescue", "image", "put", "get", "sh", "reflink", "send", "receive", "crash"} {
		if ran[v] == 0 {
			t.Errorf("no example of %s was run", v)
		}
	}
}
