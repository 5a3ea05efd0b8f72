package nbd

import (
	"io"
	"strings"
)

// negotiate speaks with the client until it has chosen the export. It returns io.EOF when the
// client leaves.
func (c *conn) negotiate() error {
	var hello [18]byte
	be.PutUint64(hello[:], magicServer)
	be.PutUint64(hello[8:], magicOption)
	be.PutUint16(hello[16:], handshakeFixed|handshakeNoZeroes)
	if _, err := c.nc.Write(hello[:]); err != nil {
		return err
	}
	var f [4]byte
	if _, err := io.ReadFull(c.r, f[:]); err != nil {
		return err
	}
	flags := be.Uint32(f[:])
	if flags&^(handshakeFixed|handshakeNoZeroes) != 0 {
		return badf("bad client flags %#x", flags)
	}
	for {
		o, err := readOption(c.r)
		if err != nil {
			return err
		}
		if o.id == optExportName {
			return c.exportName(&o, flags&handshakeNoZeroes != 0)
		}
		ready, err := c.option(&o)
		if ready || err != nil {
			return err
		}
	}
}

// exportName answers the old way to choose an export, which has no error but the end.
func (c *conn) exportName(o *option, noZeroes bool) error {
	if o.tooBig || !c.knows(string(o.data)) {
		return badf("there is no export %q", string(o.data[:min(len(o.data), nameMax)]))
	}
	var p [10 + 124]byte
	be.PutUint64(p[:], uint64(c.s.disk.Size()))
	be.PutUint16(p[8:], c.s.flags(c.structured))
	n := len(p)
	if noZeroes {
		n = 10
	}
	_, err := c.nc.Write(p[:n])
	return err
}

func (c *conn) knows(name string) bool { return name == "" || name == c.s.opt.Name }

// option answers o; ready says that the client has chosen the export.
func (c *conn) option(o *option) (ready bool, err error) {
	if o.tooBig {
		return false, c.answer(o, repErrTooBig, nil)
	}
	switch o.id {
	case optAbort:
		_ = c.answer(o, repAck, nil) // the client may have gone
		return false, io.EOF
	case optList:
		if len(o.data) > 0 {
			break
		}
		return false, c.answers(o, reply{repServer, withLen(c.s.opt.Name)})
	case optStructuredReply:
		if len(o.data) > 0 {
			break
		}
		c.structured = true
		return false, c.answers(o)
	case optInfo, optGo:
		return c.info(o)
	case optListMeta, optSetMeta:
		return false, c.metaContext(o)
	default:
		return false, c.answer(o, repErrUnsup, nil)
	}
	return false, c.answer(o, repErrInvalid, nil)
}

// info answers NBD_OPT_INFO and NBD_OPT_GO.
func (c *conn) info(o *option) (ready bool, err error) {
	name, infos, ok := parseInfo(o.data)
	switch {
	case !ok:
		return false, c.answer(o, repErrInvalid, nil)
	case !c.knows(name):
		return false, c.answer(o, repErrUnknown, nil)
	}
	export := be.AppendUint16(nil, infoExport)
	export = be.AppendUint64(export, uint64(c.s.disk.Size()))
	export = be.AppendUint16(export, c.s.flags(c.structured))
	size := be.AppendUint16(nil, infoBlockSize)
	for _, n := range []uint32{minBlock, preferredBlock, MaxRequest} {
		size = be.AppendUint32(size, n)
	}
	replies := []reply{{repInfo, export}, {repInfo, size}}
	for _, i := range infos {
		if i == infoName {
			replies = append(replies, reply{repInfo, append(be.AppendUint16(nil, infoName), c.s.opt.Name...)})
			break
		}
	}
	return o.id == optGo, c.answers(o, replies...)
}

// metaContext answers the questions for contexts of NBD_CMD_BLOCK_STATUS: there is one.
func (c *conn) metaContext(o *option) error {
	name, queries, ok := parseMeta(o.data)
	switch {
	case !ok, !c.structured:
		return c.answer(o, repErrInvalid, nil)
	case !c.knows(name):
		return c.answer(o, repErrUnknown, nil)
	}
	set := o.id == optSetMeta
	has := !set && len(queries) == 0
	for _, q := range queries {
		has = has || q == metaAllocation || !set && q == "base:"
	}
	if set {
		c.status = has
	}
	if !has {
		return c.answers(o)
	}
	id := uint32(0)
	if set {
		id = metaID
	}
	return c.answers(o, reply{repMeta, append(be.AppendUint32(nil, id), metaAllocation...)})
}

// reply is one reply to an option.
type reply struct {
	kind uint32
	data []byte
}

// answers sends the replies, and that these were all.
func (c *conn) answers(o *option, replies ...reply) error {
	for _, r := range replies {
		if err := c.answer(o, r.kind, r.data); err != nil {
			return err
		}
	}
	return c.answer(o, repAck, nil)
}

func (c *conn) answer(o *option, kind uint32, data []byte) error {
	p := make([]byte, 20, 20+len(data))
	be.PutUint64(p, magicOptReply)
	be.PutUint32(p[8:], o.id)
	be.PutUint32(p[12:], kind)
	be.PutUint32(p[16:], uint32(len(data)))
	_, err := c.nc.Write(append(p, data...))
	return err
}

// withLen is name as it goes over the wire.
func withLen(name string) []byte {
	name = strings.ToValidUTF8(name, "?")
	return append(be.AppendUint32(nil, uint32(len(name))), name...)
}
