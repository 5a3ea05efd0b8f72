package kernels

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
)

// A kernel that is not there, or not whole, is said in one line, without a machine.
func TestFindMissing(t *testing.T) {
	t.Setenv(FolderEnv, t.TempDir())
	empty, modules := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(modules, "lib/modules/6.1.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, want string }{
		{"5.10", "make fetch V=5.10 fetches it"},
		{"nothing-here", "want a folder of an unpacked package, or a version"},
		{empty, "has no lib/modules"},
		{modules, "has modules of 6.1.0 and no vmlinuz"},
	} {
		k, err := Find(c.name)
		if !errors.Is(err, ErrNoKernel) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %v, want one line with %q", c.name, k, err, c.want)
		}
	}
	if list := Installed(); len(list) != 0 {
		t.Errorf("installed: %v", list)
	}
}

// Both layouts of Debian's packages are found, and versions are ordered as numbers.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(FolderEnv, dir)
	for _, path := range []string{"5.9/boot/vmlinuz-5.9.0-x", "5.9/lib/modules/5.9.0-x/kernel/fs/btrfs/btrfs.ko", "5.10/usr/lib/modules/5.10.1/vmlinuz", "junk/file"} {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	var have []string
	for _, k := range Installed() {
		have = append(have, k.Version+" "+k.Release+" "+filepath.Base(k.Image))
	}
	if got, want := strings.Join(have, ", "), "5.9 5.9.0-x vmlinuz-5.9.0-x, 5.10 5.10.1 vmlinuz"; got != want {
		t.Errorf("installed %s, want %s", got, want)
	}
	k, err := Find("5.9")
	if err != nil {
		t.Fatal(err)
	}
	files, err := k.moduleFiles()
	if err != nil || len(files) != 1 || files["btrfs"] == "" {
		t.Errorf("modules %v, %v", files, err)
	}
}

// Without the emulator, and with a program that needs shared libraries, one line says so.
func TestBootRefused(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Boot(context.Background(), &Machine{Kernel: &Kernel{}}); !errors.Is(err, ErrNoQemu) {
		t.Errorf("without qemu: %v", err)
	}
	m := Machine{Kernel: &Kernel{Modules: t.TempDir()}, Program: filepath.Join(t.TempDir(), "dynamic")}
	if err := os.WriteFile(m.Program, dynamicELF(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.writeInitramfs(&strings.Builder{}); !errors.Is(err, ErrDynamic) {
		t.Errorf("a program with an interpreter as the guest's init: %v", err)
	}
}

// A kernel that does not boot leaves no result, and the error has what it said last; it is booted
// again, up to three times. One that dies with its job is not. The emulator is a script here.
func TestNoResult(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	console, boots := filepath.Join(dir, "console"), filepath.Join(t.TempDir(), "boots")
	oops := "BUG: unable to handle page fault\nRIP: 0010:f+0x1\nKernel panic - not syncing: Fatal exception\nRebooting"
	for _, c := range []struct {
		script, want string
		boots        int
	}{
		{"echo 'Kernel panic - not syncing: VFS' > " + console, "Kernel panic - not syncing: VFS", 3},
		{"printf '" + oops + "' > " + console, "BUG: unable to handle page fault; RIP: 0010:f+0x1; Kernel panic - not syncing: Fatal exception", 3},
		{"printf '" + jobBegins + "\n" + oops + "' > " + console, "no result: BUG: ", 1},
		{"echo 'qemu: could not load kernel' >&2; exit 1", "could not load kernel", 1},
	} {
		script := "#!/bin/sh\necho >> " + boots + "\n: > " + console + "\n" + c.script + "\n"
		if err := errors.Join(os.WriteFile(filepath.Join(bin, emulator), []byte(script), 0o755), os.WriteFile(boots, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		program := filepath.Join(t.TempDir(), "init")
		if err := os.WriteFile(program, elfHeader(), 0o755); err != nil {
			t.Fatal(err)
		}
		modules := t.TempDir()
		if err := os.Mkdir(filepath.Join(modules, "kernel"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := Run(context.Background(), &Machine{Kernel: &Kernel{Release: "6.1.0-x", Modules: modules}, Program: program, Dir: dir})
		if !errors.Is(err, ErrNoResult) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, c.want)
		}
		if b, err := os.ReadFile(boots); err != nil || len(b) != c.boots {
			t.Errorf("%q: booted %d times, want %d (%v)", c.script, len(b), c.boots, err)
		}
	}
}

// elfHeader is a program that needs no interpreter, and has nothing else.
func elfHeader() []byte {
	b := make([]byte, 64)
	copy(b, "\x7fELF\x02\x01\x01")
	b[16], b[18], b[20], b[52], b[54], b[58] = 2, 62, 1, 64, 56, 64
	return b
}

// dynamicELF is a program that names an interpreter in its only program header.
func dynamicELF() []byte {
	b := elfHeader()
	b[32], b[56] = 64, 1 // e_phoff, e_phnum
	h := make([]byte, 56)
	h[0] = 3 // PT_INTERP
	return append(b, h...)
}

// The initramfs has the program, the order and the further files.
func TestInitramfs(t *testing.T) {
	program := filepath.Join(t.TempDir(), "init")
	modules := t.TempDir()
	if err := errors.Join(os.WriteFile(program, elfHeader(), 0o755), os.Mkdir(filepath.Join(modules, "kernel"), 0o755)); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	m := Machine{Kernel: &Kernel{Modules: modules}, Program: program, Args: []string{"job"}, Disks: []string{"a", "b"}, Files: map[string][]byte{"more": []byte("text")}}
	if err := m.writeInitramfs(&b); err != nil {
		t.Fatal(err)
	}
	have := map[string]int64{}
	for in := cpio.NewReader(strings.NewReader(b.String())); ; {
		h, err := in.Next()
		if err != nil {
			break
		}
		have[h.Name] = h.Size
	}
	if have["init"] != 64 || have["more"] != 4 || have[orderPath] == 0 {
		t.Errorf("archive %v", have)
	}
	if _, ok := have["proc"]; !ok {
		t.Error("no folder proc")
	}
}

// A machine that does not come to its job is given up; one that has begun it is not.
func TestGiveUp(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, emulator), []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	program, modules := filepath.Join(t.TempDir(), "init"), t.TempDir()
	if err := errors.Join(os.WriteFile(program, elfHeader(), 0o755), os.Mkdir(filepath.Join(modules, "kernel"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, begun := range []bool{false, true} {
		dir := t.TempDir()
		g, err := Boot(context.Background(), &Machine{Kernel: &Kernel{Release: "6.1.0-x", Modules: modules}, Program: program, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if begun {
			if err := os.WriteFile(filepath.Join(dir, "console"), []byte(jobBegins+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		g.giveUp()
		if g.hung.Load() == begun {
			t.Errorf("job begun %v, given up %v", begun, g.hung.Load())
		}
		if begun {
			if err := g.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := g.Wait(); errors.Is(err, ErrNoBoot) == begun || !errors.Is(err, ErrNoResult) {
			t.Errorf("job begun %v: %v", begun, err)
		}
	}
}
