#!/bin/bash
# All of xfstests' tests/generic on a mounted image, each with a limit of time, and both checkers
# after each test that has written. Each test must pass but for those of xfstests.txt, which says of
# each why it fails or does not run; what does otherwise is told, and is an error. It takes root and
# about an hour.
#
# usage: xfstests.sh BTRLAB WORK XFSTESTS [TEST...]    XFSTESTS is a clone of kdave/xfstests, which
#                                                      is built in a copy; a TEST is generic/001
set -euo pipefail
[ $# -ge 3 ] && [ -d "$3" ] || { echo "bad xfstests, want BTRLAB WORK XFSTESTS: a clone of kdave/xfstests" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "bad user, want root" >&2; exit 2; }
list=$(dirname "$(realpath "$0")")/xfstests.txt
mkdir -p "$2/test" "$2/scratch"
btrlab=$(realpath "$1") work=$(realpath "$2") clone=$(realpath "$3"); shift 3
xfs=$work/xfs
if [ ! -x "$xfs/ltp/fsx" ]; then
	mkdir -p "$xfs"; git -C "$clone" archive HEAD | tar x -C "$xfs"
	make -s -C "$xfs" -j2 >"$work/xfs.log" 2>&1
fi
for u in fsgqa fsgqa2 123456-fsgqa; do id $u >/dev/null 2>&1 || useradd -m $u; done
for u in fsgqa fsgqa2; do mkdir -p /home/$u; chown $u: /home/$u; done

# xfstests has no word for a FUSE file system but the helper of mount(8): btrlabjudge TAG DIR mounts
# the image of the tag, once the server before has let go of it.
helper=/sbin/mount.fuse.btrlabjudge
cat >$helper <<C
#!/bin/bash
img=$work/\$1.img
case " \$* " in *remount*) exec "$btrlab" mount "\$img" "\${@:2}";; esac
[ -e "\$img" ] || "$btrlab" mkfs -q --size 12G "\$img"
flock "\$img" true
exec "$btrlab" mount "\$img" "\$2" --daemon --allow-other -o fsname="\$1" "\${@:3}"
C
chmod +x $helper
trap 'rm -f $helper' EXIT
rm -f "$work"/judge[12].img

# df must say "fuse", a test ends after its time, and what the suite leaves out for FUSE it has here.
grep -q 's/fuse\\' "$xfs/common/rc" || sed -i "s#-e 's/fuse.ceph-fuse/ceph-fuse/'#&  -e 's/fuse\\\\.[a-z0-9]*/fuse/'#" "$xfs/common/rc"
grep -q TEST_SECONDS "$xfs/check" || sed -i 's#local cmd=(bash -c#local cmd=(timeout -s KILL ${TEST_SECONDS:-120} bash -c#' "$xfs/check"
grep -q 'common/btrlab' "$xfs/common/rc" || echo '. ./common/btrlab' >>"$xfs/common/rc"
cat >"$xfs/common/btrlab" <<C
# A new file system, of a size or of its own; small ones have mixed block groups, as for btrfs.
_btrlab_mkfs() { umount "\$SCRATCH_MNT" 2>/dev/null; [ ! -e "$work/\$SCRATCH_DEV.img" ] || { flock "$work/\$SCRATCH_DEV.img" true; rm "$work/\$SCRATCH_DEV.img"; }; "$btrlab" mkfs -q "\$@" "$work/\$SCRATCH_DEV.img"; }
_scratch_mkfs() { _btrlab_mkfs --size 12G; }
_try_scratch_mkfs_sized() { if [ "\$1" -lt \$((256 << 20)) ]; then _btrlab_mkfs --size "\$1" --mixed; else _btrlab_mkfs --size "\$1"; fi; }
# Both checkers, on an image that nobody has mounted.
_btrlab_check() {
	local up=
	if mountpoint -q "\$2"; then up=1; umount "\$2" || return; fi
	[ -e "$work/\$1.img" ] || return 0
	flock "$work/\$1.img" true; "$btrlab" check "$work/\$1.img" >"\$seqres.check" 2>&1 && btrfs check --readonly --check-data-csum "$work/\$1.img" >>"\$seqres.check" 2>&1 && { [ -z "\$up" ] || _mount -t fuse.btrlabjudge "\$1" "\$2"; return; }
	echo "\$1 is inconsistent (see \$seqres.check)"; cp --sparse=always "$work/\$1.img" "\$seqres.img"; return 1
}
_check_scratch_fs() { _btrlab_check "\$SCRATCH_DEV" "\$SCRATCH_MNT"; }
_check_test_fs() { _btrlab_check "\$TEST_DEV" "\$TEST_DIR"; }
_filesystem_timestamp_range() { echo "-9223372036854775808 9223372036854775807"; }
C
cat >"$xfs/local.config" <<C
export FSTYP=fuse FUSE_SUBTYP=.btrlabjudge TEST_DEV=judge1 SCRATCH_DEV=judge2 TEST_DIR=$work/test SCRATCH_MNT=$work/scratch
export LOAD_FACTOR=1 TIME_FACTOR=1 SOAK_DURATION=10
C
cd "$xfs"
[ $# -gt 0 ] || set -- $(cd tests && ls -d generic/[0-9][0-9][0-9])
# A HUP would end the run.
setsid -w ./check "$@" >"$work/xfs.out" 2>&1 || true
for d in test scratch; do umount "$work/$d" 2>/dev/null || true; done

# The summary, beside the list.
tail -n 8 "$work/xfs.out" | awk -v list="$list" -v all="$*" '
	BEGIN {
		while ((getline line <list) > 0)
			if (line ~ /^(fail|notrun|slow) /) want = substr(line, 1, index(line, " ") - 1)
			else if (line ~ /^\t/) { n = split(line, f, /[ \t]+/); for (i = 1; i <= n; i++) if (f[i] != "") listed["generic/" f[i]] = want }
	}
	/^Not run: / { for (i = 3; i <= NF; i++) have[$i] = "notrun" }
	/^Failures: / { for (i = 2; i <= NF; i++) have[$i] = "fail" }
	/^Ran: / { for (i = 2; i <= NF; i++) if (!($i in have)) have[$i] = "pass" }
	END {
		n = split(all, t, " ")
		for (i = 1; i <= n; i++) {
			h = (t[i] in have) ? have[t[i]] : "fail"; w = (t[i] in listed) ? listed[t[i]] : "pass"
			count[h]++
			if (w == "slow" && h != "notrun" || h == w) continue
			bad++; print "FAIL: " t[i] ": " h ", xfstests.txt says " w
		}
		print "xfstests: " n " tests, " count["pass"] + 0 " pass, " count["fail"] + 0 " fail, " count["notrun"] + 0 " do not run; " bad + 0 " not as listed"
		exit bad > 0
	}'
