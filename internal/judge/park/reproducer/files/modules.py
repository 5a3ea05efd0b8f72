#!/usr/bin/env python3
"""modules.py MODULES FOLDER: unpack the modules that the guest needs, and those that they depend
on, from a kernel's lib/modules/RELEASE into FOLDER. Their names there sort in the order in which
they are to be loaded. A module that the kernel does not have is built in."""
import gzip
import lzma
import os
import re
import subprocess
import sys

WANTED = ["virtio_pci", "virtio_blk", "virtio_console", "crc32c_generic", "crc32c_intel",
          "crc32c_cryptoapi", "xxhash_generic", "sha256_generic", "blake2b_generic", "btrfs"]


def read(path):
    if path.endswith(".zst"):
        return subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout
    opener = {".xz": lzma.open, ".gz": gzip.open}.get(os.path.splitext(path)[1], open)
    with opener(path, "rb") as f:
        return f.read()


def main(source, target):
    files, loaded = {}, []
    for folder, _, names in os.walk(source):
        for name in names:
            if ".ko" in name:
                files[name.split(".ko")[0].replace("-", "_")] = os.path.join(folder, name)

    def load(name):
        if name in loaded or name not in files:
            return
        data = read(files[name])
        depends = re.search(rb"\0depends=([^\0]+)\0", data)
        for other in depends.group(1).decode().split(",") if depends else []:
            load(other.replace("-", "_"))
        with open(os.path.join(target, "%02d-%s.ko" % (len(loaded), name)), "wb") as f:
            f.write(data)
        loaded.append(name)

    for name in WANTED:
        load(name)
    if not loaded:
        sys.exit("modules.py: bad folder, have no module of %s in %s" % (", ".join(WANTED), source))


main(sys.argv[1], sys.argv[2])
