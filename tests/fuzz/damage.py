"""What is done to a file before a verb reads it.

A change is a few small numbers and words, so that a case can be printed and repeated. What it means
depends on what the file holds: of a JSON file one node of its tree becomes something else, of an
array its header or its numbers, of a table a column, and of any file some bytes.
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
"""Where a value goes that Python's json would not write."""
VALUES = (
    "null", "true", "false", "0", "-1", "1", "2", "0.5", "-0.0", "1e308", "1e-320", "1e400", "NaN",
    "Infinity", "-Infinity", "2147483648", "9223372036854775808", "1000000000000000000", "9" * 400,
    "9" * 5000, '""', '" "', '"x"', '"\\u001b[31mred"', '"\\u202egnitset"', '"\\ud800"',
    '"\\u0000"', '"../../../etc/passwd"', '"/dev/zero"', '"<script>alert(1)</script>"', '"NaN"',
    '"1"', "[]", "{}", "[null]", "[[]]", "[1, 2]", '["x"]', '{"x": 1}', '{"": null}', "[-1]",
    "[1e400]", "[[1]]", '{"x": {"x": {"x": []}}}', "DEEP", "LONG", "MANY", '"(a+)+$"',
    '"(.*)*(.*)*x"',
)  # fmt: skip
"""What a node of a JSON tree becomes, as JSON; three are made when they are needed."""
MADE = {
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
        what: which of its kind.
        at: which node, byte, line, column or number; any whole number means one.
        sealed: whether seals that the file has are made anew, so that they hold.
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
    """The kinds of change that a file can have, and which there are of each."""
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
    place = damage.at % len(lines)
    lines[place] = _changed(lines[place], damage)
    path.write_text("\n".join(lines) + "\n", "utf-8", "surrogatepass")


def _changed(text: str, damage: Damage) -> str:
    """JSON with one of its nodes changed."""
    root = [json.loads(text)]
    places = list(_places(root, 0))
    holder, key = places[damage.at % len(places)]
    value = MADE.get(damage.what, lambda: damage.what)()
    if damage.what == "delete":
        del holder[key]
    elif damage.what == "twice":
        if isinstance(holder, list):
            holder.insert(key, holder[key])
        else:
            holder[f"{key} "] = holder[key]
    elif damage.what == "more":
        holder[key] = [holder[key]] if isinstance(holder[key], dict) else {"x": holder[key]}
    else:
        holder[key] = HERE
    if damage.sealed:
        _reseal(root[0] if root else None, value)
    return json.dumps(root[0] if root else None).replace(json.dumps(HERE), value)


def _places(holder: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """Every node of a tree, as what holds it and where."""
    yield holder, key
    value = holder[key]
    if isinstance(value, dict | list):
        for each in list(value) if isinstance(value, dict) else range(len(value)):
            yield from _places(value, each)


def _reseal(content: Any, value: str) -> None:
    """Make the seal of a manifest anew, where what was put in can be sealed at all."""
    if not isinstance(content, dict) or "sha256" not in content:
        return
    try:
        real = json.loads(json.dumps(content).replace(json.dumps(HERE), value))
        content["sha256"] = checksum({k: v for k, v in real.items() if k != "sha256"})
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return


def _bytes(path: Path, damage: Damage) -> None:
    path.write_bytes(_spoilt(path.read_bytes(), damage))


def _spoilt(content: bytes, damage: Damage) -> bytes:
    place = damage.at % max(1, len(content))
    head, tail = content[:place], content[place:]
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
    """One number of one tensor becomes another; `at` below 2 all of it."""
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
    where = slice(None) if damage.at < 2 else damage.at % max(1, numbers.size)
    if numbers.size:
        numbers.reshape(-1)[where] = value


def _array_header(path: Path, damage: Damage) -> None:
    path.write_bytes(_headed(path.read_bytes(), damage.what))


def _headed(content: bytes, what: str) -> bytes:
    """An array with another shape or kind in its header than it has."""
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
    """One array of an archive changed, or gone."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = sorted(members)[damage.at % len(members)]
    content = members.pop(name)
    if damage.what in HEADERS:
        members[name] = _headed(content, damage.what)
    elif damage.what in NUMBERS:
        members[name] = _numbered(content, damage)
    with zipfile.ZipFile(path, "w") as archive:
        for each, held in members.items():
            archive.writestr(each, held)


def _unpacked(path: Path, damage: Damage) -> None:
    path.write_bytes(gzip.compress(_spoilt(gzip.decompress(path.read_bytes()), damage)))


def _column(path: Path, damage: Damage) -> None:
    """One column of a table changed, or all of its rows."""
    table = pq.read_table(path)
    if not table.num_columns:
        return
    place = damage.at % table.num_columns
    name, rows = table.column_names[place], table.num_rows
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
        table = table.set_column(place, name, columns[damage.what]())
    elif damage.what == "drop":
        table = table.remove_column(place)
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
