#!/bin/sh
# dist.sh DIR [GOOS/GOARCH...]: what a release of btrlab is, in DIR: an archive for each system with
# the program, the manual pages and the completions, packages for Debian, a bill of materials, and
# their checksums. The programs have the labs of the last commit in them. The same commit and the
# same Go make the same bytes. Run in the clone; wants git, GNU tar, gzip, zip, and of dpkg-deb what
# is there.
set -eu
dir=${1:?bad arguments, have none want a folder}
shift
targets=${*:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}
go=${GO:-go}
for tool in git gzip tar; do
	command -v $tool >/dev/null || { echo "dist: no $tool" >&2; exit 2; }
done
tar --version 2>/dev/null | grep -q GNU || { echo "dist: have another tar, want GNU tar: archives are to be the same everywhere" >&2; exit 2; }
version=$(git describe --tags --always --dirty)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CGO_ENABLED=0
rm -rf "$dir"
mkdir -p "$dir/parts/man1" "$dir/parts/completions"

labs=internal/study/handout/packed/labs.zip
trap 'rm -f "$labs"; rm -rf "$dir/parts"' EXIT
host=$dir/parts/btrlab
$go build -o "$host" ./cmd/btrlab
"$host" lab handout "$dir/parts/labs" >/dev/null
mv "$dir/parts/labs.zip" "$labs"
"$host" man "$dir/parts/man1"
gzip -n -9 "$dir"/parts/man1/*
for shell in bash zsh fish; do
	"$host" completion $shell >"$dir/parts/completions/btrlab.$shell"
done

# archive NAME: what is in parts/NAME, always in the same order and of the same time.
archive() {
	tar -C "$dir/parts" --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w --mtime="@$SOURCE_DATE_EPOCH" -cf - "$1" | gzip -n -9 >"$dir/$1.tar.gz"
}

for target in $targets; do
	os=${target%/*} arch=${target#*/}
	name=btrlab-$version-$os-$arch
	echo "$name"
	root=$dir/parts/$name
	mkdir -p "$root"
	exe=btrlab
	[ "$os" != windows ] || exe=btrlab.exe
	GOOS=$os GOARCH=$arch $go build -trimpath -buildvcs=false -tags labs -ldflags='-s -w -buildid=' -o "$root/$exe" ./cmd/btrlab
	cp LICENSE README.md "$root"
	if [ "$os" = windows ]; then
		archive "$name"
		continue
	fi
	cp -r "$dir/parts/man1" "$dir/parts/completions" "$root"
	archive "$name"
	if [ "$os" = linux ] && command -v dpkg-deb >/dev/null; then
		deb=$dir/parts/deb-$arch
		mkdir -p "$deb/DEBIAN" "$deb/usr/bin" "$deb/usr/share/man/man1" "$deb/usr/share/doc/btrlab" "$deb/usr/share/bash-completion/completions" \
			"$deb/usr/share/zsh/vendor-completions" "$deb/usr/share/fish/vendor_completions.d"
		cp "$root/btrlab" "$deb/usr/bin"
		cp "$root"/man1/* "$deb/usr/share/man/man1"
		cp LICENSE "$deb/usr/share/doc/btrlab/copyright"
		cp "$root/completions/btrlab.bash" "$deb/usr/share/bash-completion/completions/btrlab"
		cp "$root/completions/btrlab.zsh" "$deb/usr/share/zsh/vendor-completions/_btrlab"
		cp "$root/completions/btrlab.fish" "$deb/usr/share/fish/vendor_completions.d"
		cat >"$deb/DEBIAN/control" <<-C
			Package: btrlab
			Version: 0~$(git log -1 --format=%cd --date=format:%Y%m%d).$(git rev-parse --short HEAD)
			Architecture: $arch
			Maintainer: btrlab
			Section: admin
			Priority: optional
			Suggests: golang-go, btrfs-progs, qemu-system-x86
			Description: btrfs image tool and teaching lab for file-system concurrency
			 Reads, writes, checks and repairs btrfs images without a mount, and teaches the
			 locks of the kernel's write path: every order of steps can be tried.
		C
		chmod -R go-w "$deb"
		dpkg-deb --root-owner-group -Zgzip --build "$deb" "$dir/btrlab-$version-$arch.deb" >/dev/null
	fi
done

# The bill of materials is read from a program, so it says what is in it.
first=${targets%% *}
exe=btrlab
[ "${first%/*}" != windows ] || exe=btrlab.exe
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0
GOFLAGS=-mod=mod $go run "$sbom" bin -json -noserial -std -version "$version" -output "$dir/btrlab-$version.cdx.json" "$dir/parts/btrlab-$version-${first%/*}-${first#*/}/$exe" 2>"$dir/parts/sbom.log" ||
	{ cat "$dir/parts/sbom.log" >&2; exit 1; }
sed -i.orig '/^ *"timestamp": /d' "$dir/btrlab-$version.cdx.json"
rm -f "$dir"/*.orig

rm -f "$labs"
rm -rf "$dir/parts"
(cd "$dir" && sha256sum btrlab-* >SHA256SUMS && cat SHA256SUMS)
