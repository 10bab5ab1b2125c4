# SPDX-License-Identifier: Apache-2.0
"""Writes an image's archive again with its layers as they are before compression, the image otherwise the same: unzipped.py LAYOUT
ARCHIVE, of a directory in OCI's layout."""

import gzip
import io
import json
import pathlib
import sys
import tarfile

layout, archive = pathlib.Path(sys.argv[1]), sys.argv[2]


def blob(digest):
    return (layout / "blobs" / digest.replace(":", "/")).read_bytes()


def manifest():
    top = json.loads((layout / "index.json").read_text())["manifests"][0]
    name = top["annotations"]["io.containerd.image.name"]
    found = json.loads(blob(top["digest"]))
    while "manifests" in found:
        found = json.loads(blob(found["manifests"][0]["digest"]))
    return name, found


def add(out, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    out.addfile(info, io.BytesIO(content))


name, found = manifest()
with tarfile.open(archive, "w") as out:
    layers = []
    for number, layer in enumerate(found["layers"]):
        content = blob(layer["digest"])
        layers.append(f"layer{number}.tar")
        add(out, layers[-1], gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    config = found["config"]["digest"].partition(":")[2] + ".json"
    add(out, config, blob(found["config"]["digest"]))
    add(out, "manifest.json", json.dumps([{"Config": config, "RepoTags": [name], "Layers": layers}]).encode())
