"""The members of a zip archive: where each lies, so that it can be read as a stream; nothing is unpacked ahead."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

from metrics.checkpoints.archive import CHUNK, BadArchive, Window, stream
from metrics.checkpoints.pickled import BytesOnly, Unreadable

TABLE = 16 << 20
"""Bytes of an archive's table beyond which it is not read: its members are held in memory."""

LARGEST_UNPACKED = 16 << 30
"""Bytes that packed members may claim to have, all together: unpacking takes time."""

HEADER = 30
"""Bytes of the header that lies before each member, names aside."""


class _Modest(Window):
    """A stretch of a file that gives no more at a time than the table of an archive may have."""

    def read(self, size: int = -1, /) -> bytes:
        if size > TABLE:
            raise BadArchive(f"its table of members has {size} bytes")
        return super().read(size) or b""


@dataclass(frozen=True)
class Member:
    """One member: its first byte in the file, its length there and when unpacked, in bytes."""

    name: str
    handle: int
    begin: int
    length: int
    size: int
    packed: bool
    where: tuple[int, int]

    def parts(self) -> Iterator[memoryview]:
        """Its bytes, unpacked, in parts that are good until the next one."""
        if not self.packed:
            yield from stream(self.handle, self.begin, self.length)
            return
        with zipfile.ZipFile(_Modest(self.handle, *self.where)) as archive, archive.open(self.name) as member:
            left = self.size
            try:
                while part := member.read(min(left, CHUNK)):
                    left -= len(part)
                    yield memoryview(part)
            except (zipfile.BadZipFile, zipfile.zlib.error, EOFError) as error:  # type: ignore[attr-defined]
                raise BadArchive(f"{self.name} cannot be unpacked: {error}") from error
            if left:
                raise BadArchive(f"{self.name} ends {left} bytes too early")

    def content(self, most: int) -> bytes:
        """All its bytes.

        Raises BytesOnly when it has more than that, or is packed.
        """
        if self.packed or self.length > most:
            raise BytesOnly(f"its member {self.name} has {self.size} bytes" + ", packed" * self.packed)
        return b"".join(bytes(part) for part in self.parts())


def members(handle: int, begin: int, length: int) -> dict[str, Member]:
    """The members of the archive in a stretch of a file, by name, folders aside.

    Raises Unreadable when there is none, or two have the same name.
    """
    found: dict[str, Member] = {}
    try:
        with zipfile.ZipFile(_Modest(handle, begin, length)) as archive:
            for info in archive.infolist():
                if info.filename in found:
                    raise Unreadable(f"it has two members called {info.filename}")
                if not info.is_dir():
                    found[info.filename] = _member(handle, begin, length, info)
    except (
        zipfile.BadZipFile,
        BadArchive,
        NotImplementedError,
        OSError,
        OverflowError,
        ValueError,
        struct.error,
    ) as bad:
        raise Unreadable(f"its archive cannot be read: {bad}") from bad
    if sum(member.size for member in found.values() if member.packed) > LARGEST_UNPACKED:
        raise BytesOnly(f"its packed members claim to have more than {LARGEST_UNPACKED} bytes")
    return found


def _member(handle: int, begin: int, length: int, info: zipfile.ZipInfo) -> Member:
    head = os.pread(handle, HEADER, begin + info.header_offset)
    if len(head) < HEADER or head[:4] != b"PK\x03\x04":
        raise BadArchive(f"{info.filename} has no header")
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadArchive(f"{info.filename} is encrypted, or packed in an unknown way")
    first = begin + info.header_offset + HEADER + sum(struct.unpack("<HH", head[26:30]))
    packed = info.compress_type != zipfile.ZIP_STORED
    if first + info.compress_size > begin + length or (not packed and info.file_size != info.compress_size):
        raise BadArchive(f"{info.filename} goes beyond the archive")
    return Member(info.filename, handle, first, info.compress_size, info.file_size, packed, (begin, length))
