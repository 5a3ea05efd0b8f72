// Package profile collects profiles of a run: Go's own, and one of lock waits by lock class, operation and
// policy, which Go's mutex and block profiles cannot tell apart.
package profile

import "io"

// Paths says which profiles to write and where; an empty path is none.
type Paths struct {
	CPU, Mutex, Block, Lock string
}

// Start begins the profiles. Stop ends them and writes the files; call it once.
func Start(p Paths) (stop func() error, err error) { panic("profile: not there yet") }

// Server serves profiles over HTTP.
type Server struct{}

// Serve serves net/http/pprof on addr (host:port), and /debug/pprof/lock, the lock waits so far, on a mux of its own.
func Serve(addr string) (*Server, error) { panic("profile: not there yet") }

// Addr is where the server listens.
func (s *Server) Addr() string { panic("profile: not there yet") }

// Close stops the server.
func (s *Server) Close() error { panic("profile: not there yet") }

// WriteLocks writes the lock profile so far as pprof's gzipped protobuf.
func (l *Locks) WriteLocks(w io.Writer) error { panic("profile: not there yet") }

// Locks is a trace.Sink that adds up waits.
type Locks struct{}
