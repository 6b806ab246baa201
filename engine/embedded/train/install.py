"""Puts a trained MTP module into a model's file, leaving all other bytes."""

import hashlib
import json
import os


def layout(data):
    """Header of a safetensors file, and where its tensors' bytes begin."""
    n = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + n]), 8 + n


def install_mtp(assets, file):
    """Puts the bytes of file's tensors into the assets' model.safetensors; prints the digest of all other bytes, which stays."""
    path = os.path.join(assets, "model.safetensors")
    data, head = bytearray(open(path, "rb").read()), open(file, "rb").read()
    (old, at), (new, src) = layout(data), layout(head)
    new.pop("__metadata__", None)
    names = {n for n in old if n.startswith("mtp.")}
    if set(new) != names:
        raise SystemExit(f"head has other tensors: {sorted(set(new) ^ names)}")

    def others():
        rest = bytearray(data)
        for n in names:
            b, e = old[n]["data_offsets"]
            rest[at + b:at + e] = bytes(e - b)
        return hashlib.sha256(rest).hexdigest()
    before = others()
    for n in names:
        if (new[n]["dtype"], new[n]["shape"]) != (old[n]["dtype"], old[n]["shape"]):
            raise SystemExit(f"{n}: {new[n]} for {old[n]}")
        (b, e), (b2, e2) = old[n]["data_offsets"], new[n]["data_offsets"]
        data[at + b:at + e] = head[src + b2:src + e2]
    if others() != before:
        raise SystemExit("bytes outside the head changed")
    with open(path, "wb") as f:
        f.write(data)
    print(json.dumps({"head_tensors": len(names), "all_other_bytes_sha256": before}))
