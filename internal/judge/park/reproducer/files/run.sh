#!/bin/sh
# run.sh KERNEL-FOLDER, or run.sh VMLINUZ [MODULES-FOLDER]: compile repro.c, make an initramfs of it
# and the kernel's modules, boot that in qemu, and lead its tasks through the schedule (park.py).
# KERNEL-FOLDER is an unpacked kernel package; MODULES-FOLDER is lib/modules/RELEASE of a kernel,
# left out if the kernel has all that is needed built in.
# Exit code: 1 the kernel breaks, 0 it keeps what it promises, 2 no verdict, and one line why.
set -eu

stop() {
	echo "run.sh: $1" >&2
	exit 2
}

case $# in
1 | 2) ;;
*) stop "bad arguments, have $# want KERNEL-FOLDER, or VMLINUZ [MODULES-FOLDER]" ;;
esac
cc=${CC:-gcc}
for tool in qemu-system-x86_64 "$cc" python3 cpio; do
	command -v "$tool" >/dev/null || stop "no $tool: want qemu-system-x86_64, gcc, python3 and cpio"
done

kernel=$1 modules=${2:-}
if [ -d "$1" ]; then
	[ $# = 1 ] || stop "bad arguments, have a folder and $2, want a folder alone"
	kernel='' modules=''
	for m in "$1"/lib/modules/* "$1"/usr/lib/modules/*; do
		[ -d "$m" ] || continue
		modules=$m
		for k in "$1/boot/vmlinuz-${m##*/}" "$m/vmlinuz"; do
			[ -f "$k" ] && kernel=$k
		done
	done
	[ -n "$kernel" ] || stop "bad folder, have no vmlinuz-RELEASE with lib/modules/RELEASE in $1"
fi
[ -f "$kernel" ] || stop "bad kernel, have no file $kernel"
[ -z "$modules" ] || [ -d "$modules" ] || stop "bad modules, have no folder $modules"

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
mkdir -p "$work/root/modules" "$work/root/dev"
"$cc" -std=gnu11 -O1 -Wall -static -o "$work/root/init" "$here/repro.c" 2>"$work/cc" || {
	cat "$work/cc" >&2
	stop "$cc cannot compile repro.c with -static (glibc-static, libc6-dev?)"
}
if [ -n "$modules" ]; then
	python3 "$here/modules.py" "$modules" "$work/root/modules" || exit 2
fi
(cd "$work/root" && find . | cpio --quiet -o -H newc >"$work/initramfs") || stop "cpio fails"
python3 "$here/park.py" "$kernel" "$work/initramfs" "$work" || exit $?
