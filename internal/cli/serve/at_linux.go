package serve

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"btrlab/internal/mount"
)

// atAddress is the abstract socket of the server of what is mounted at dir: each mount has a device
// number of its own. The server asks as well, and must not wait for itself.
func atAddress(dir string) (string, error) {
	major, minor, err := mount.Device(dir)
	if err != nil {
		return "", err
	}
	above, above2, err := mount.Device(filepath.Join(dir, ".."))
	if err != nil {
		return "", err
	}
	if major == above && minor == above2 {
		return "", errors.New("is no mount point, want the directory of btrlab mount")
	}
	return fmt.Sprintf("@btrlab/mount/%d:%d", major, minor), nil
}

// listenAt makes the socket of the mount at dir. Its clients are those who may end the server:
// root, and the user that it runs as.
func listenAt(dir string) (net.Listener, error) {
	addr, err := atAddress(dir)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", addr)
	if err != nil {
		return nil, err
	}
	return ownOnly{l}, nil
}

// ownOnly closes the connections of other users.
type ownOnly struct{ net.Listener }

func (l ownOnly) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || mayCommand(c.(*net.UnixConn)) {
			return c, err
		}
		c.Close()
	}
}

func mayCommand(c *net.UnixConn) (may bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		may = err == nil && (who.Uid == 0 || int(who.Uid) == os.Geteuid())
	})
	return may && err == nil
}

// dialAt connects to the server of the mount at dir.
func dialAt(dir string) (net.Conn, error) {
	addr, err := atAddress(dir)
	if err != nil {
		return nil, err
	}
	c, err := net.Dial("unix", addr)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, errors.New("is no mount of btrlab, or that of another network namespace")
	}
	return c, err
}
