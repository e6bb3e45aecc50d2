"""Writes small.dbp after the description in src/package/README.md, without the library: python3 make.py"""
import struct, zlib
from pathlib import Path

def u8(n): return struct.pack("<B", n)
def u32(n): return struct.pack("<I", n)
def u64(n): return struct.pack("<Q", n)
def i64(n): return struct.pack("<q", n)
def blob(b): return u32(len(b)) + b
def text(s): return blob(s.encode())
def many(items): return u32(len(items)) + b"".join(items)

F32 = 15
INPUT, TEMPORARY, OUTPUT, STATE, CONSTANT = range(5)

def block(kind, length, at=0, data_at=0): return u8(kind) + u64(length) + u64(at) + u64(data_at)
def fixed(n): return u8(0) + u64(n)
def expression(*terms): return u8(1) + many(list(terms))
def port(name, shape, number, length): return text(name) + u8(F32) + many(shape) + u32(number) + u64(0) + u64(length)
def place(number, offset): return u32(number) + u64(offset)

constants = struct.pack("<16f", *range(16)) + struct.pack("<4f", 1, 2, 3, 4)
two_n = expression(u8(1) + u32(0), u8(0) + i64(2), u8(4))  # variable 0, number 2, product
program = (
    text("small")
    + many([text("n") + i64(1) + i64(8)])
    + many([block(INPUT, 64), block(OUTPUT, 64), block(STATE, 16, 64, 64), block(CONSTANT, 64), block(TEMPORARY, 8, 128)])
    + u64(192) + u64(len(constants)) + many([])
    + many([port("x", [two_n], 0, 64)])
    + many([port("y", [two_n, fixed(1)], 1, 64), port("z", [fixed(2), fixed(2)], 2, 16)])
)
launch = (
    u8(0) + u32(0) + u32(2) + b"".join(u32(n) for n in (4, 1, 1, 32, 1, 1)) + u32(64)
    + many([u8(0) + place(1, 0), u8(0) + place(3, 4), u8(1) + u32(0), u8(2) + u64(7)])
)
copy = u8(1) + place(1, 0) + place(2, 0) + u64(16)
target = text("gfx1100") + many([text("k") + text("k") + blob(b"code")]) + many([launch, copy])

sections = [(1, program), (2, target), (3, constants)]
body, rows = b"", b""
start = 64 + 32 * len(sections)
for kind, data in sections:
    body += bytes(-(start + len(body)) % 64)
    at = start + len(body)
    rows += u32(kind) + u32(zlib.crc32(data)) + u64(at) + u64(len(data)) + u64(0)
    body += data
head = b"\x89DBP\r\n\x1a\n" + u32(1) + u32(len(sections)) + u64(start + len(body)) + u64(at) + u32(zlib.crc32(rows))
head += bytes(60 - len(head))
head += u32(zlib.crc32(head))
Path(__file__).with_name("small.dbp").write_bytes(head + rows + body)
