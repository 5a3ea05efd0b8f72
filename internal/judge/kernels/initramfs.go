package kernels

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cavaliergopher/cpio"
)

// order is what Init is told, in the file orderPath of the initramfs.
type order struct {
	Modules []string `json:"modules"` // files, in the order in which they are loaded
	Args    []string `json:"args"`    // of the program, for the job
	Disks   int      `json:"disks"`   // that the job works on; the next one takes the results
}

const orderPath = "order.json"

// ErrDynamic means that the program needs shared libraries, which a guest does not have.
var ErrDynamic = errors.New("the program needs shared libraries: build it with CGO_ENABLED=0 (make build)")

// static reports whether a program needs no interpreter.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s: %w", path, ErrDynamic)
		}
	}
	return nil
}

// writeInitramfs writes the archive that the kernel unpacks into its root folder: the program as
// /init, the modules, further files and the order.
func (m *Machine) writeInitramfs(w io.Writer) error {
	if err := static(m.Program); err != nil {
		return err
	}
	modules, err := m.Kernel.loadOrder(wanted)
	if err != nil {
		return err
	}
	out := archive{w: cpio.NewWriter(w)}
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "out", "mnt", "modules"} {
		out.put(dir, cpio.TypeDir|0o755, nil)
	}
	program, err := os.ReadFile(m.Program)
	if err != nil {
		return err
	}
	out.put("init", cpio.TypeReg|0o755, program)
	o := order{Args: m.Args, Disks: len(m.Disks)}
	for _, x := range modules {
		path := filepath.Join("modules", x.name+".ko")
		out.put(path, cpio.TypeReg|0o644, x.data)
		o.Modules = append(o.Modules, "/"+path)
	}
	for name, data := range m.Files {
		out.put(name, cpio.TypeReg|0o644, data)
	}
	b, err := json.Marshal(&o)
	if err != nil {
		return err
	}
	out.put(orderPath, cpio.TypeReg|0o644, b)
	return errors.Join(out.err, out.w.Close())
}

// archive writes files until an error, which it keeps.
type archive struct {
	w     *cpio.Writer
	inode int64
	err   error
}

func (a *archive) put(name string, mode cpio.FileMode, data []byte) {
	if a.err != nil {
		return
	}
	a.inode++
	if a.err = a.w.WriteHeader(&cpio.Header{Name: name, Mode: mode, Size: int64(len(data)), Inode: a.inode, Links: 1}); a.err == nil {
		_, a.err = a.w.Write(data)
	}
}
