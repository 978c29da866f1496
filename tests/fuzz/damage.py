"""Damage to a file before a verb reads it, described so that a case can be printed and repeated.

It changes one node of a JSON file, the header or the numbers of an array, a column of a table, or
some bytes of any file.
"""

import gzip
import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vestige.data.canaries.planting import checksum

HERE = "\ue000here\ue000"
"""Placeholder of a value that Python's json would not write."""
VALUES = (
    "null", "true", "false", "0", "-1", "1", "2", "0.5", "-0.0", "1e308", "1e-320", "1e400", "NaN",
    "Infinity", "-Infinity", "2147483648", "9223372036854775808", "1000000000000000000", "9" * 400,
    "9" * 5000, '""', '" "', '"x"', '"\\u001b[31mred"', '"\\u202egnitset"', '"\\ud800"',
    '"\\u0000"', '"../../../etc/passwd"', '"/dev/zero"', '"<script>alert(1)</script>"', '"NaN"',
    '"1"', "[]", "{}", "[null]", "[[]]", "[1, 2]", '["x"]', '{"x": 1}', '{"": null}', "[-1]",
    "[1e400]", "[[1]]", '{"x": {"x": {"x": []}}}', "DEEP", "LONG", "MANY", '"(a+)+$"',
    '"(.*)*(.*)*x"',
)  # fmt: skip
"""Replacements of a JSON node; `LARGE_VALUES` makes the names in capitals."""
LARGE_VALUES = {
    "DEEP": lambda: "[" * 100_000 + "]" * 100_000,
    "LONG": lambda: '"' + "x" * 1_000_000 + '"',
    "MANY": lambda: "[" + "0," * 300_000 + "0]",
}
TREE = ("delete", "twice", "more", *VALUES)
BYTES = (
    "flip", "cut", "zero", "ones", "insert", "extend", "empty", "newline", "latin", "escape", "nul",
    "bom", "text", "deep",
)  # fmt: skip
PLACES = ("gone", "folder", "fifo", "loop", "unreadable", "link")
HEADERS = (
    "(-1,)", "(0,)", "(1000000000000,)", "(9223372036854775808,)", "(3, -3)", "()", "(1, 1, 1)",
    "'|O'", "'<U100000000'", "'<f8'", "'>i4'", "'|b1'", "'<M8[s]'", "'garbage'", "[('a', '<i4')]",
)  # fmt: skip
NUMBERS = ("-1", "0", "2147483647", "1000000", "nan", "inf", "1e30")
COLUMNS = (
    "drop", "rename", "null", "text", "number", "nan", "inf", "huge", "list", "hostile", "empty",
    "many", "binary",
)  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """One change of one file.

    Attributes:
        file: its path in the world.
        how: the kind of change: a key of `WAYS`.
        what: the change itself.
        at: index of the node, byte, line, column or number, modulo their number.
        sealed: whether the checksums of a manifest are updated.
    """

    file: str
    how: str
    what: str
    at: int = 0
    sealed: bool = False


def apply(damage: Damage, path: Path) -> None:
    """Change a file."""
    WAYS[damage.how](path, damage)


def ways_of(file: str) -> dict[str, tuple[str, ...]]:
    """The changes that a file can have, by kind."""
    suffix = Path(file).suffix
    special = {
        ".json": {"tree": TREE},
        ".jsonl": {"line": TREE},
        ".safetensors": {"header": TREE, "weights": NUMBERS},
        ".npy": {"array header": HEADERS, "numbers": NUMBERS},
        ".npz": {"members": (*HEADERS, *NUMBERS, "drop")},
        ".parquet": {"column": COLUMNS},
        ".gz": {"unpacked": BYTES},
    }
    return {**special.get(suffix, {}), "bytes": BYTES, "place": PLACES}


def _tree(path: Path, damage: Damage) -> None:
    path.write_text(_changed(path.read_text("utf-8"), damage), "utf-8", "surrogatepass")


def _line(path: Path, damage: Damage) -> None:
    lines = path.read_text("utf-8").splitlines()
    number = damage.at % len(lines)
    lines[number] = _changed(lines[number], damage)
    path.write_text("\n".join(lines) + "\n", "utf-8", "surrogatepass")


def _changed(text: str, damage: Damage) -> str:
    """JSON with one of its nodes changed."""
    root = [json.loads(text)]
    nodes = list(_nodes(root, 0))
    parent, key = nodes[damage.at % len(nodes)]
    value = LARGE_VALUES.get(damage.what, lambda: damage.what)()
    if damage.what == "delete":
        del parent[key]
    elif damage.what == "twice":
        if isinstance(parent, list):
            parent.insert(key, parent[key])
        else:
            parent[f"{key} "] = parent[key]
    elif damage.what == "more":
        parent[key] = [parent[key]] if isinstance(parent[key], dict) else {"x": parent[key]}
    else:
        parent[key] = HERE
    if damage.sealed:
        _reseal(root[0] if root else None, value)
    return json.dumps(root[0] if root else None).replace(json.dumps(HERE), value)


def _nodes(parent: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """(parent, key) of every node of a tree."""
    yield parent, key
    value = parent[key]
    if isinstance(value, dict | list):
        for child in list(value) if isinstance(value, dict) else range(len(value)):
            yield from _nodes(value, child)


def _reseal(content: Any, value: str) -> None:
    """Update the checksum of a manifest, if its new value has one."""
    if not isinstance(content, dict) or "sha256" not in content:
        return
    try:
        real = json.loads(json.dumps(content).replace(json.dumps(HERE), value))
        content["sha256"] = checksum({k: v for k, v in real.items() if k != "sha256"})
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return


def _bytes(path: Path, damage: Damage) -> None:
    path.write_bytes(_damaged(path.read_bytes(), damage))


def _damaged(content: bytes, damage: Damage) -> bytes:
    position = damage.at % max(1, len(content))
    head, tail = content[:position], content[position:]
    ways: dict[str, Callable[[], bytes]] = {
        "flip": lambda: head + bytes([tail[0] ^ 1 << damage.at % 8]) + tail[1:] if tail else b"\1",
        "cut": lambda: head,
        "zero": lambda: head + bytes(len(tail[:16])) + tail[16:],
        "ones": lambda: head + b"\xff" * len(tail[:8]) + tail[8:],
        "insert": lambda: head + bytes(7) + tail,
        "extend": lambda: content + content,
        "empty": lambda: b"",
        "newline": lambda: head + b"\r\n\r" + tail,
        "latin": lambda: head + b"caf\xe9" + tail,
        "escape": lambda: head + "\x1b[31m\u202e\u2066".encode() + tail,
        "nul": lambda: head + b"\0" + tail,
        "bom": lambda: b"\xef\xbb\xbf" + content,
        "text": lambda: b"not what you think\n",
        "deep": lambda: b"[" * 100_000,
    }
    return ways[damage.what]()


def _place(path: Path, damage: Damage) -> None:
    if damage.what == "unreadable":
        path.chmod(0)
        return
    path.unlink()
    ways: dict[str, Callable[[], object]] = {
        "gone": lambda: None,
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "loop": lambda: path.symlink_to(path.name),
        "link": lambda: path.symlink_to("/dev/zero"),
    }
    ways[damage.what]()


def _safetensors_header(path: Path, damage: Damage) -> None:
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = _changed(content[8 : 8 + size].decode(), damage).encode("utf-8", "surrogatepass")
    path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])


def _weights(path: Path, damage: Damage) -> None:
    """Replace one number of a tensor, or all of them if `at` is below 2."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    kinds = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BF16": "<u2"}
    tensors = [t for n, t in header.items() if n != "__metadata__" and t["dtype"] in kinds]
    if not tensors:
        return
    tensor = tensors[damage.at % len(tensors)]
    begin, end = (8 + size + offset for offset in tensor["data_offsets"])
    numbers = np.frombuffer(content[begin:end], kinds[tensor["dtype"]]).copy()
    _put(numbers, damage)
    path.write_bytes(content[:begin] + numbers.tobytes() + content[end:])


def _put(numbers: Any, damage: Damage) -> None:
    with np.errstate(all="ignore"):
        value = np.array(float(damage.what)).astype(numbers.dtype)
    index = slice(None) if damage.at < 2 else damage.at % max(1, numbers.size)
    if numbers.size:
        numbers.reshape(-1)[index] = value


def _array_header(path: Path, damage: Damage) -> None:
    path.write_bytes(_headed(path.read_bytes(), damage.what))


def _headed(content: bytes, what: str) -> bytes:
    """An array whose header has a wrong shape or type."""
    size = struct.unpack("<H", content[8:10])[0]
    header = content[10 : 10 + size].decode("latin-1")
    key = "shape" if what[0] == "(" else "descr"
    old = {"shape": r"'shape': \([^)]*\)", "descr": r"'descr': '[^']*'"}[key]
    header = re.sub(old, lambda _: f"'{key}': {what}", header)
    return content[:8] + struct.pack("<H", len(header)) + header.encode() + content[10 + size :]


def _numbers(path: Path, damage: Damage) -> None:
    path.write_bytes(_numbered(path.read_bytes(), damage))


def _numbered(content: bytes, damage: Damage) -> bytes:
    numbers = np.load(io.BytesIO(content))
    _put(numbers, damage)
    file = io.BytesIO()
    np.save(file, numbers)
    return file.getvalue()


def _members(path: Path, damage: Damage) -> None:
    """Change or remove one array of an archive."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = sorted(members)[damage.at % len(members)]
    content = members.pop(name)
    if damage.what in HEADERS:
        members[name] = _headed(content, damage.what)
    elif damage.what in NUMBERS:
        members[name] = _numbered(content, damage)
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)


def _unpacked(path: Path, damage: Damage) -> None:
    path.write_bytes(gzip.compress(_damaged(gzip.decompress(path.read_bytes()), damage)))


def _column(path: Path, damage: Damage) -> None:
    """Change one column or all rows of a table."""
    table = pq.read_table(path)
    if not table.num_columns:
        return
    index = damage.at % table.num_columns
    name, rows = table.column_names[index], table.num_rows
    columns: dict[str, Callable[[], Any]] = {
        "null": lambda: pa.nulls(rows),
        "text": lambda: pa.array(["x"] * rows, pa.string()),
        "number": lambda: pa.array([-1] * rows, pa.int64()),
        "nan": lambda: pa.array([float("nan")] * rows),
        "inf": lambda: pa.array([float("inf")] * rows),
        "huge": lambda: pa.array([10**18] * rows),
        "list": lambda: pa.array([[[1]]] * rows),
        "hostile": lambda: pa.array(["\x1b[31m\u202e<script>"] * rows),
        "binary": lambda: pa.array([b"\xff\0"] * rows),
    }
    if damage.what in columns:
        table = table.set_column(index, name, columns[damage.what]())
    elif damage.what == "drop":
        table = table.remove_column(index)
    elif damage.what == "rename":
        table = table.rename_columns([f"{n} " if n == name else n for n in table.column_names])
    elif damage.what == "empty":
        table = table.slice(0, 0)
    else:
        table = pa.concat_tables([table] * 50)
    pq.write_table(table, path)


WAYS: dict[str, Callable[[Path, Damage], None]] = {
    "tree": _tree,
    "line": _line,
    "bytes": _bytes,
    "place": _place,
    "header": _safetensors_header,
    "weights": _weights,
    "array header": _array_header,
    "numbers": _numbers,
    "members": _members,
    "unpacked": _unpacked,
    "column": _column,
}
