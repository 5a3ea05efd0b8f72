#!/bin/bash
# Makes the streams of this folder; as root, with Linux 6.18 and btrfs-progs 6.2: make.sh FOLDER
set -eu
out=$1 img=$(mktemp) m=$(mktemp -d)
truncate -s 256M "$img"
mkfs.btrfs -q "$img" >/dev/null
mount -o loop "$img" "$m"
trap 'umount "$m"; rmdir "$m"; rm "$img"' EXIT
btrfs -q subvolume create "$m/s"
cd "$m/s"
printf hello >a
head -c 9000 /dev/zero | tr '\0' x >big
mkdir -p d/e
ln a d/hard
ln -s ../a d/sym
mkfifo p
mknod n c 1 3
truncate -s 1M sparse
printf tail >>sparse
setfattr -n user.k -v v a
chown 1000:1001 a
chmod 4755 big
cp --reflink=always big big2
mkdir c swap1 swap2
touch swap1/one swap2/two
for kind in zlib lzo zstd; do
	btrfs property set c compression $kind
	yes | head -c 20000 >c/$kind
	sync -f .
done
cd /
btrfs -q subvolume snapshot -r "$m/s" "$m/s1"
cd "$m/s"
mv a d/a2
mv d/e e2
rm p d/hard
printf XX | dd of=big bs=1 seek=5000 conv=notrunc status=none
mv swap1 t
mv swap2 swap1
mv t swap2
truncate -s 500 sparse
printf new >a
setfattr -x user.k d/a2
cp --reflink=always big2 big3
cd /
btrfs -q subvolume snapshot -r "$m/s" "$m/s2"
sync -f "$m"
btrfs -q send "$m/s1" >"$out/full-v1"
btrfs -q send --proto 2 --compressed-data "$m/s1" >"$out/full-v2"
btrfs -q send -p "$m/s1" "$m/s2" >"$out/inc-v1"
btrfs -q send --proto 2 --compressed-data -p "$m/s1" "$m/s2" >"$out/inc-v2"
