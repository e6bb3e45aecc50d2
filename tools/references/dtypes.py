"""Dtypes of the references and their bits.

numpy has no bf16 and no fp8; their arrays are float32 arrays that hold only representable values, and this file turns
those into bits. Rounding is to nearest, ties to even, done once from a wide value (no double rounding). Sources: IEEE
754-2019; bfloat16 as in Intel's "BFLOAT16 - Hardware Numerics Definition"; fp8 as in the OCP "8-bit Floating Point
Specification", conversions without saturation: e4m3 has no infinity, so what is beyond its largest value becomes NaN; the
two FNUZ formats have no infinity and no -0 (its code is NaN), and a bias larger by one.
"""
import numpy as np

WIDE = np.longdouble
assert np.finfo(WIDE).nmant >= 63, "the generator needs 80-bit long double (x86-64) to hold 64-bit integers exactly"

INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
FNUZ = ("fp8e4m3fnuz", "fp8e5m2fnuz")
FP8 = ("fp8e4m3", "fp8e5m2") + FNUZ
ALL = ("bool",) + INTS + FLOATS + FP8

_NUMPY = {"bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
          "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
          "bf16": np.float32, "fp8e4m3": np.float32, "fp8e5m2": np.float32, "fp8e4m3fnuz": np.float32, "fp8e5m2fnuz": np.float32}
# name: (significant bits, smallest normal exponent, largest finite value)
_FORMAT = {"f64": (53, -1022, np.finfo(np.float64).max), "f32": (24, -126, np.finfo(np.float32).max), "f16": (11, -14, 65504.0),
           "bf16": (8, -126, 2.0**127 * (2 - 2.0**-7)), "fp8e4m3": (4, -6, 448.0), "fp8e5m2": (3, -14, 57344.0),
           "fp8e4m3fnuz": (4, -7, 240.0), "fp8e5m2fnuz": (3, -15, 57344.0)}


def is_float(dtype):
    return dtype in _FORMAT


def eps(dtype):
    """Distance from 1 to the next value."""
    return 2.0 ** (1 - _FORMAT[dtype][0])


def tiny(dtype):
    """The smallest normal value."""
    return 2.0 ** _FORMAT[dtype][1]


def largest(dtype):
    return float(_FORMAT[dtype][2]) if is_float(dtype) else int(np.iinfo(_NUMPY[dtype]).max)


def smallest(dtype):
    return -largest(dtype) if is_float(dtype) else int(np.iinfo(_NUMPY[dtype]).min)


def round_float(x, dtype):
    """Wide values -> the nearest values of a float dtype, still wide."""
    bits, low, top = _FORMAT[dtype]
    x = np.asarray(x, WIDE)
    _, exponent = np.frexp(np.where(np.isfinite(x), x, 1))
    quantum = np.ldexp(WIDE(1), np.maximum(exponent - 1, low) - (bits - 1))
    with np.errstate(all="ignore"):
        near = np.where(np.isfinite(x), np.rint(x / quantum) * quantum, x)
    near = np.where((near == 0) & np.isfinite(x), np.copysign(WIDE(0), x), near)
    if dtype in FNUZ:
        near = np.where(near == 0, WIDE(0), near)
    over = np.abs(near) > top
    beyond = np.nan if dtype in FP8 and dtype != "fp8e5m2" else np.inf
    return np.where(over | np.isinf(x), np.copysign(WIDE(beyond), near), near)


def to(x, dtype):
    """Any array -> an array of the dtype: floats rounded once, integers wrapped."""
    x = np.asarray(x)
    if is_float(dtype):
        return round_float(x, dtype).astype(_NUMPY[dtype])
    if dtype == "bool":
        return x != 0
    return (np.trunc(x).astype(np.uint64 if dtype == "u64" else np.int64) if x.dtype.kind == "f" else x).astype(_NUMPY[dtype])


def to_bits(x, dtype):
    """An array of the dtype -> its little-endian bytes."""
    x = np.asarray(x)
    if dtype == "bool":
        return x.astype(np.uint8).tobytes()
    if dtype == "bf16":
        return (np.ascontiguousarray(x, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    if dtype in FP8:
        return _fp8_bits(x, dtype).tobytes()
    return x.astype(np.dtype(_NUMPY[dtype]).newbyteorder("<")).tobytes()


def _fp8_bits(x, dtype):
    bits, low, _ = _FORMAT[dtype]
    sign = np.signbit(x).astype(np.uint8) << 7
    size = np.where(np.isfinite(x), np.abs(x), 0).astype(np.float64)
    _, exponent = np.frexp(size)
    exponent = np.maximum(exponent - 1, low)
    fraction = np.ldexp(size, bits - 1 - exponent).astype(np.int64)  # subnormals: less than 2^(bits-1)
    biased = np.where(fraction >> (bits - 1), exponent - low + 1, 0)
    code = (biased << (bits - 1)) | (fraction & ((1 << (bits - 1)) - 1))
    if dtype in FNUZ:
        return np.where(np.isnan(x), 0x80, code | np.where(code == 0, 0, sign)).astype(np.uint8)
    code = np.where(np.isinf(x), 0x7C, code)
    return (np.where(np.isnan(x), 0x7F, code).astype(np.uint8) | sign).astype(np.uint8)


def from_bits(data, dtype):
    """Bytes -> an array of the dtype (one dimension)."""
    if dtype == "bf16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    if dtype in FP8:
        table = _fp8_values(dtype)
        return table[np.frombuffer(data, np.uint8)]
    return np.frombuffer(data, np.dtype(_NUMPY[dtype]).newbyteorder("<"))


def _fp8_values(dtype):
    bits, low, _ = _FORMAT[dtype]
    code = np.arange(256)
    biased, fraction = (code & 0x7F) >> (bits - 1), code & ((1 << (bits - 1)) - 1)
    size = np.where(biased == 0, np.ldexp(fraction * 1.0, low - bits + 1), np.ldexp((1 << (bits - 1)) + fraction * 1.0, biased - 1 + low - bits + 1))
    if dtype == "fp8e5m2":
        size = np.where(biased == 31, np.where(fraction == 0, np.inf, np.nan), size)
    elif dtype == "fp8e4m3":
        size = np.where((code & 0x7F) == 0x7F, np.nan, size)
    else:
        size = np.where(code == 0x80, np.nan, size)
    return np.where(code & 0x80, -size, size).astype(np.float32)


def self_check():
    """The bit code against itself and, where numpy has the type, against numpy."""
    for dtype in ("bf16",) + FP8 + ("f16",):
        width = 2 if dtype.endswith("16") else 1
        every = np.arange(256**width, dtype="<u2" if width == 2 else "u1").tobytes()
        values = from_bits(every, dtype)
        back = np.frombuffer(to_bits(values, dtype), "<u2" if width == 2 else "u1")
        same = (back == np.frombuffer(every, back.dtype)) | np.isnan(values)
        assert same.all(), dtype
        finite = values[np.isfinite(values)].astype(WIDE)
        assert (round_float(finite, dtype) == finite).all(), dtype
        order = np.unique(finite)
        middle = (order[1:] + order[:-1]) / 2
        assert np.isin(round_float(middle, dtype), order).all(), dtype
    x = np.random.default_rng(1).standard_normal(5000) * 10.0 ** np.random.default_rng(2).integers(-12, 12, 5000)
    for dtype, kind in (("f16", np.float16), ("f32", np.float32)):
        with np.errstate(over="ignore"):
            assert (to(x, dtype) == x.astype(kind)).all(), dtype
