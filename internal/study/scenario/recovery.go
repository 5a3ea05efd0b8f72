package scenario

import (
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
)

// What a power cut leaves is judged in two parts. The first is what a mount finds: it replays the
// log, checks the image and reads names and files. That follows from the bytes on the device alone
// and takes a hundred times as long as a short execution. The executions of one scenario leave a
// dozen different devices, so it is looked up for a device that was mounted before (run.recovery).
// The second part is whether that keeps what the syncs of the history promised. It is judged in
// every execution (run.recovered).

// recovery is what a mount finds on a device after a power cut. Nobody changes it.
type recovery struct {
	dev    *overlay  // as the power cut left it
	hadLog bool      // there was a log to replay
	err    error     // the device can't be mounted, is not clean, or can't be read
	names  versionOf // of the run that mounted it; the files of all runs of a worker are the same
	left   map[string]*leftFile
}

// leftFile is a file that a name leads to.
type leftFile struct {
	bytes []byte // from where the history of the file begins
	err   error  // it can't be read
	attrs map[OpKind]attrValue
}

type attrValue struct {
	value string
	err   error
}

// attr is the value of an attribute, as of func attr.
func (l *leftFile) attr(kind OpKind) (string, error) {
	v := l.attrs[kind]
	return v.value, v.err
}

// recoveriesMax bounds what a worker keeps.
const recoveriesMax = 64

// recovery mounts dev, unless a device with the same bytes was mounted before.
func (r *run) recovery(t *sched.Task, dev *overlay) *recovery {
	for _, c := range r.recoveries {
		if c.dev.equal(dev) {
			return c
		}
	}
	c := &recovery{dev: dev.clone()}
	c.err = c.mount(t, r, dev)
	if len(r.recoveries) < recoveriesMax {
		r.recoveries = append(r.recoveries, c)
	}
	return c
}

// mount replays the log on dev, checks it and reads what is there.
func (c *recovery) mount(t *sched.Task, r *run, dev *overlay) (err error) {
	if c.hadLog, err = replayLog(t, dev, r.policy); err != nil {
		return err
	}
	x, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{ReadOnly: true, Now: now, EndioWorkers: 1, CacheBlocks: 64, Memory: fs.NoLimit})
	if err != nil {
		return err
	}
	defer x.Pause(t)
	res, err := check.Check(t, dev, check.Options{})
	switch n := len(res.Findings); {
	case err != nil:
		return fmt.Errorf("check: %w", err)
	case n > 1:
		return fmt.Errorf("the image is not clean: %v, and %d more", res.Findings[0], n-1)
	case n == 1:
		return fmt.Errorf("the image is not clean: %v", res.Findings[0])
	}
	c.names = versionOf{FileName: &r.first}
	if r.named() {
		if c.names, err = r.namesIn(t, x); err != nil {
			return err
		}
	}
	c.left = map[string]*leftFile{}
	for name, s := range c.names {
		c.left[name] = readLeft(t, x, s, name)
	}
	return nil
}

// readLeft reads the file s, whose name in x is name.
func readLeft(t *sched.Task, x *fs.FS, s *subject, name string) *leftFile {
	l := &leftFile{attrs: map[OpKind]attrValue{}}
	f, err := x.OpenFile(t, name, fs.O_RDONLY, 0)
	if err != nil {
		l.err = err
		return l
	}
	l.bytes, l.err = s.read(t, f, nil)
	for _, kind := range []OpKind{OpChmod, OpSetxattr} {
		v, err := attr(t, f.Node(), kind)
		l.attrs[kind] = attrValue{v, err}
	}
	return l
}

// replayLog replays the log on dev, if there is one, as a mount under policy p does.
func replayLog(t *sched.Task, dev blockdev.Device, p *policy.Policy) (had bool, err error) {
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(t, dev, b, format.SuperOffset); err != nil {
		return false, err
	}
	var sb format.Super
	if sb.Decode(b); sb.LogRoot == 0 {
		return false, nil
	}
	x, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{Policy: p, Now: now, EndioWorkers: 1, CacheBlocks: 64, Memory: fs.NoLimit})
	if err != nil {
		return true, err
	}
	return true, x.Close(t)
}
