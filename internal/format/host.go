package format

// DecodeDev is the kernel's device number, major<<20 | minor, of one as system calls and streams
// have it. Models new_decode_dev().
func DecodeDev(dev uint64) uint64 { return dev>>8&0xfff<<20 | dev&0xff | dev>>12&0xfff00 }

// EncodeDev is the inverse of DecodeDev. Models new_encode_dev().
func EncodeDev(rdev uint64) uint64 {
	major, minor := rdev>>20, rdev&(1<<20-1)
	return minor&0xff | major<<8 | minor&^0xff<<12
}

// HostFlag pairs a flag of an inode item with those by which programs know it.
type HostFlag struct {
	Inode uint64 // Inode...
	Attr  uint32 // of FS_IOC_GETFLAGS and chattr(1)
	X     uint32 // of FS_IOC_FSGETXATTR; 0 if that has none
}

// HostFlags are the flags that programs may set or see.
var HostFlags = [...]HostFlag{
	{InodeSync, 0x8, 0x20},
	{InodeImmutable, 0x10, 0x8},
	{InodeAppend, 0x20, 0x10},
	{InodeNoDump, 0x40, 0x80},
	{InodeNoAtime, 0x80, 0x40},
	{InodeCompress, 0x4, 0},
	{InodeNoCompress, 0x400, 0},
	{InodeDirSync, 0x10000, 0},
	{InodeNoDataCow, 0x800000, 0},
}
