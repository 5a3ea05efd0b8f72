package scenario

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
)

// What a power cut leaves, or the loss of a device, is judged in two parts. The first is what a
// mount finds: it replays the log, checks the image and reads names and files. That follows from
// the bytes on the device alone and takes a hundred times as long as a short execution. The
// executions of one scenario leave a dozen different devices, so it is looked up for a device that
// was mounted before (run.recovery). The second part is whether that keeps what the syncs of the
// history promised. It is judged in every execution (run.recovered).

// recovery is what a mount finds on the devices after a power cut, or without some of them. Nobody
// changes it.
type recovery struct {
	devs   disks     // as the power cut left them
	lost   uint      // the devices that the mount is not given, as of disks.devices
	hadLog bool      // there was a log to replay
	err    error     // they can't be mounted, are not clean, or can't be read
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

// recovery mounts the devices but for those that are lost, unless devices with the same bytes were
// mounted before.
func (r *run) recovery(t *sched.Task, devs disks, lost uint) *recovery {
	for _, c := range r.recoveries {
		if c.lost == lost && c.devs.equal(devs) {
			return c
		}
	}
	c := &recovery{devs: devs.each((*overlay).clone), lost: lost}
	c.err = c.mount(t, r, devs)
	if len(r.recoveries) < recoveriesMax {
		r.recoveries = append(r.recoveries, c)
	}
	return c
}

// mount replays the log on the devices, checks them and reads what is there. Where some are lost
// it only reads.
func (c *recovery) mount(t *sched.Task, r *run, disks disks) (err error) {
	devs := disks.devices(c.lost)
	if c.lost == 0 {
		if c.hadLog, err = replayLog(t, devs, r.policy); err != nil {
			return err
		}
	}
	x, err := fs.Open(t, devs, fs.Options{ReadOnly: true, Degraded: c.lost > 0, Now: now, EndioWorkers: 1, CacheBlocks: 64, Memory: fs.NoLimit})
	if err != nil {
		return err
	}
	defer x.Pause(t)
	if c.lost == 0 {
		if err := clean(t, devs); err != nil {
			return err
		}
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

// clean says why the image is not clean.
func clean(t *sched.Task, devs []blockdev.Device) error {
	res, err := check.Check(t, devs[0], check.Options{Devices: devs[1:]})
	switch n := len(res.Findings); {
	case err != nil:
		return fmt.Errorf("check: %w", err)
	case n > 1:
		return fmt.Errorf("the image is not clean: %v, and %d more", res.Findings[0], n-1)
	case n == 1:
		return fmt.Errorf("the image is not clean: %v", res.Findings[0])
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

// replayLog replays the log on the devices, if there is one, as a mount under policy p does.
func replayLog(t *sched.Task, devs []blockdev.Device, p *policy.Policy) (had bool, err error) {
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(t, devs[0], b, format.SuperOffset); err != nil {
		return false, err
	}
	var sb format.Super
	if sb.Decode(b); sb.LogRoot == 0 {
		return false, nil
	}
	x, err := fs.Open(t, devs, fs.Options{Policy: p, Now: now, EndioWorkers: 1, CacheBlocks: 64, Memory: fs.NoLimit})
	if err != nil {
		return true, err
	}
	return true, x.Close(t)
}

// lookDegraded reads the files without each device, and with two of parity without each two, and
// judges them by what is read: the sync before it has put everything into its place.
func (r *run) lookDegraded(t *sched.Task) error {
	for lost := uint(1); lost < 1<<len(r.devs); lost++ {
		if bits.OnesCount(lost) > layouts[r.s.Profile].bears {
			continue
		}
		c := r.recovery(t, r.devs, lost)
		if c.err != nil {
			return fmt.Errorf("%s: %w", without(lost), c.err)
		}
		for _, name := range slices.Sorted(maps.Keys(c.names)) {
			if l := c.left[name]; l.err != nil {
				return fmt.Errorf("%s: %w", without(lost), l.err)
			} else if err := r.judgeBytes(c.names[name], l.bytes, without(lost)); err != nil {
				return err
			}
		}
	}
	return nil
}

// without says which devices are lost, by their numbers from 1.
func without(lost uint) string {
	var l []string
	for i := range bits.Len(lost) {
		if lost>>i&1 == 1 {
			l = append(l, strconv.Itoa(i+1))
		}
	}
	return "without device " + strings.Join(l, " and ")
}
