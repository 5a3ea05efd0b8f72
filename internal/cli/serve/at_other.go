//go:build !linux

package serve

import (
	"errors"
	"net"
)

func listenAt(string) (net.Listener, error) { return nil, errors.ErrUnsupported }

func dialAt(string) (net.Conn, error) {
	return nil, errors.New("sh --at needs a mount, which is on Linux only")
}
