# SPDX-License-Identifier: Apache-2.0
"""The grammar of argument types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flydsl_build.codec import DecodeError, decode, encode
from flydsl_build.declare.argument_grammar import format_argument, parse_argument
from flydsl_build.declare.argument_types import ArgumentType, Dim, PointerType, ScalarType, StreamType, StructType, TensorType
from flydsl_build.dtypes import DTYPES, SCALAR_DTYPES, element_bytes
from flydsl_build.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    ConfigFault = Callable[[Callable[[], object]], str]


def argument_from_json(data: Any) -> Any:
    return decode(ArgumentType, data, where="argument")


def tensor(dtype: str, shape: str, strides: str, alignment: int, stride_bits: int = 64) -> TensorType:
    def dims(text: str) -> tuple[Dim, ...]:
        return tuple(Dim.from_json(int(each) if each.isdecimal() else each) for each in text.split())

    return TensorType(dtype=dtype, shape=dims(shape), strides=dims(strides), alignment=alignment, stride_bits=stride_bits)


@pytest.mark.parametrize(
    ("text", "value", "canonical"),
    [
        ("f32[M, N]", tensor("f32", "M N", "? 1", 4), "f32[M, N]"),
        ("f32[N]", tensor("f32", "N", "1", 4), "f32[N]"),
        (" f64 [ ? , ?%8,N ] ", tensor("f64", "? ?%8 N", "? ? 1", 8), "f64[?, ?%8, N]"),
        ("f32[128, 64]", tensor("f32", "128 64", "64 1", 4), "f32[128, 64]"),
        ("f16[2, 3, 4]", tensor("f16", "2 3 4", "12 4 1", 2), "f16[2, 3, 4]"),
        ("f16[2, 3, 4 : 12, 4, 1]", tensor("f16", "2 3 4", "12 4 1", 2), "f16[2, 3, 4]"),
        ("f32[M, 128]", tensor("f32", "M 128", "? 1", 4), "f32[M, 128]"),
        ("f32[128, N]", tensor("f32", "128 N", "? 1", 4), "f32[128, N]"),
        ("f32[M, 128 : 128, 1]", tensor("f32", "M 128", "128 1", 4), "f32[M, 128 : 128, 1]"),
        ("bf16[M, K : lda%8, 1]@16", tensor("bf16", "M K", "lda%8 1", 16), "bf16[M, K : lda%8, 1]@16"),
        ("f32[M, N : ?, 1]", tensor("f32", "M N", "? 1", 4), "f32[M, N]"),
        ("f32[M : 0]", tensor("f32", "M", "0", 4), "f32[M : 0]"),
        ("f32[M, M%16]", tensor("f32", "M M%16", "? 1", 4), "f32[M, M%16]"),
        ("f32[M%1]", tensor("f32", "M", "1", 4), "f32[M]"),
        ("f32[M, N; i32]", tensor("f32", "M N", "? 1", 4, 32), "f32[M, N; i32]"),
        ("f32[M, N : s, 1; i32]@16", tensor("f32", "M N", "s 1", 16, 32), "f32[M, N : s, 1; i32]@16"),
        ("f32[M; i64]", tensor("f32", "M", "1", 4), "f32[M]"),
        ("f4e2m1fn[M, K%2]", tensor("f4e2m1fn", "M K%2", "? 1", 1), "f4e2m1fn[M, K%2]"),
        ("bool[M]@1", tensor("bool", "M", "1", 1), "bool[M]"),
        ("ptr<f32>", PointerType(dtype="f32", alignment=4), "ptr<f32>"),
        ("ptr < f8e4m3fn > @ 16", PointerType(dtype="f8e4m3fn", alignment=16), "ptr<f8e4m3fn>@16"),
        ("i32", ScalarType(dtype="i32"), "i32"),
        (" bool ", ScalarType(dtype="bool"), "bool"),
        ("stream", StreamType(), "stream"),
    ],
)
def test_values(text: str, value: ArgumentType, canonical: str) -> None:
    assert parse_argument(text, where="K") == value
    assert format_argument(value) == canonical
    assert parse_argument(canonical, where="K") == value
    assert argument_from_json(encode(value)) == value


def test_every_dtype() -> None:
    for dtype in DTYPES:
        value = parse_argument(f"{dtype}[N]", where="K")
        assert isinstance(value, TensorType)
        assert value.alignment == element_bytes(dtype)
    for dtype in SCALAR_DTYPES:
        assert parse_argument(dtype, where="K") == ScalarType(dtype=dtype)


@pytest.mark.parametrize(
    ("text", "position", "what", "fix"),
    [
        ("", 0, "the argument type is empty", 'write a type such as "f32[M, N]", "i32" or "ptr<f32>"'),
        ("   ", 0, "the argument type is empty", 'write a type such as "f32[M, N]", "i32" or "ptr<f32>"'),
        ("[M]", 0, 'expected a dtype, found "["', 'write a type such as "f32[M, N]", "i32" or "ptr<f32>"'),
        ("F32[M]", 0, 'unknown dtype "F32"', 'Did you mean "f32"?'),
        ("float32[M]", 0, 'unknown dtype "float32"', 'Did you mean "f32"?'),
        ("fp16", 0, 'unknown dtype "fp16"', 'Did you mean "f16"?'),
        ("torch.bfloat16[M]", 0, 'unknown dtype "torch.bfloat16"', 'Did you mean "bf16"?'),
        ("fp8[M]", 0, 'unknown dtype "fp8"', 'Did you mean "f8e4m3fn"?'),
        ("float8_e4m3fnuz[M]", 0, 'unknown dtype "float8_e4m3fnuz"', 'Did you mean "f8e4m3fnuz"?'),
        ("xyz[M]", 0, 'unknown dtype "xyz"', "Allowed: " + ", ".join(DTYPES) + "."),
        ("f32[]", 4, "a tensor needs at least one dim", 'write "f32[N]", or "f32" for a scalar'),
        (f"f32[{', '.join('?' * 17)}]", 3, "a tensor of 17 dims", "a tensor has at most 16"),
        ("f32[: 1]", 4, "a tensor needs at least one dim", 'write "f32[N]", or "f32" for a scalar'),
        ("f32[M N]", 6, 'expected "]", found "N"', 'separate dims with ",", begin strides with ":", end with "]"'),
        ("f32[M, N", 3, '"[" is not closed', 'close it with "]"'),
        ("f32[M,", 6, "expected an extent, found the end", 'write an integer, "?", a name, or one of the last two with %8'),
        ("f32[M, ]", 7, 'expected an extent, found "]"', 'write an integer, "?", a name, or one of the last two with %8'),
        ("f32[-1]", 4, 'expected an extent, found "-"', 'write an integer, "?", a name, or one of the last two with %8'),
        ("f32[a.b]", 4, 'expected an extent, found "a.b"', 'write an integer, "?", a name, or one of the last two with %8'),
        ("f32[0]", 4, "an extent of 0", "an extent is from 1 to 2147483647"),
        ("f32[M : 9999999999999999999999]", 8, "a stride of 9999999999999999999999", "a stride is from 0 to 9223372036854775807"),
        ("f32[128%8]", 7, "an extent of 128 is static: a divisor says nothing", 'write "128", or "?%…" for a dynamic one'),
        ("f32[M%3]", 6, 'expected a power of two, found "3"', 'a divisor is a power of two up to 2**30: "M%8"'),
        ("f32[M%0]", 6, 'expected a power of two, found "0"', 'a divisor is a power of two up to 2**30: "M%8"'),
        ("f32[M%]", 6, 'expected a power of two, found "]"', 'a divisor is a power of two up to 2**30: "M%8"'),
        ("f32[M, N : 1]", 9, "2 dims, but 1 stride", "write one stride for each dim, or none"),
        ("f32[M : 1, 1]", 6, "1 dim, but 2 strides", "write one stride for each dim, or none"),
        ("f32[M; i16]", 7, 'expected the width of strides, found "i16"', 'write "; i32" or "; i64"'),
        ("f32[M]@3", 7, 'expected a power of two, found "3"', 'an alignment is a power of two of bytes up to 4096: "@16"'),
        ("f32[M]@", 7, "expected a power of two, found the end", 'an alignment is a power of two of bytes up to 4096: "@16"'),
        ("f32[M]@2", 7, "an alignment of 2 bytes is less than an element", "f32 has 4 bytes"),
        ("f32[M] x", 7, 'expected the end, found "x"', 'after "]" or ">" only @bytes may follow'),
        ("f32[M]@16 x", 10, 'expected the end, found "x"', 'after "]" or ">" only @bytes may follow'),
        ("f32 M", 4, 'expected "[" or the end, found "M"', 'write "f32[M, N]" for a tensor'),
        ("f32@8", 3, "a scalar has no alignment", 'only tensors and pointers do: "f32[M]@16"'),
        (
            "f8e5m2",
            0,
            "f8e5m2 cannot be passed by value",
            "scalars are f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, bool",
        ),
        ("ptr", 3, 'expected "<", found the end', 'write the type it points to: "ptr<f32>"'),
        ("ptr<>", 4, 'expected a dtype, found ">"', 'write the type it points to: "ptr<f32>"'),
        ("ptr<half>", 4, 'unknown dtype "half"', 'Did you mean "f16"?'),
        ("ptr<f32", 7, 'expected ">", found the end', 'write the type it points to: "ptr<f32>"'),
        ("stream[1]", 6, 'expected the end, found "["', 'after "]" or ">" only @bytes may follow'),
    ],
)
def test_faults(text: str, position: int, what: str, fix: str, config_fault: ConfigFault) -> None:
    message = config_fault(lambda: parse_argument(text, where="K"))
    assert message == f"K: {what}\n    -> {fix}\n    | {text}\n    | {' ' * position}^"


def test_thousands_of_digits(config_fault: ConfigFault) -> None:
    digits = "9" * 10000
    assert config_fault(lambda: parse_argument(f"f32[{digits}]", where="K")).startswith(f"K: an extent of {digits}\n")


def test_text_made_from_placeholders_is_shown_with_its_source(config_fault: ConfigFault) -> None:
    assert config_fault(lambda: parse_argument("half[M]", where="K", written="{t}[M]")) == (
        'K: unknown dtype "half"\n    -> Did you mean "f16"?\n    | half[M]\n    | ^\n    | from "{t}[M]"'
    )


def test_json_is_the_manifests() -> None:
    value = StructType(
        fields=(("a", parse_argument("bf16[M, 8 : lda%8, 1; i32]@16", where="K")), ("p", PointerType(dtype="f32", alignment=4)))
    )
    data = encode(value)
    assert data == {
        "kind": "struct",
        "type": "",
        "fields": {
            "a": {"kind": "tensor", "dtype": "bf16", "shape": ["M", 8], "strides": ["lda%8", 1], "align": 16, "stride_bits": 32},
            "p": {"kind": "pointer", "dtype": "f32", "align": 4},
        },
    }
    assert argument_from_json(data) == value
    assert format_argument(value) == "{a = bf16[M, 8 : lda%8, 1; i32]@16, p = ptr<f32>}"
    with pytest.raises(DecodeError, match=r'^argument: kind: is "x"'):
        argument_from_json({"kind": "x"})


@pytest.mark.parametrize("text", ["", "M N", "M%3", "-1", "f32[M]"])
def test_dims_of_a_manifest_are_checked(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a dim: \?, a name, or one of them with % and a power of two$"):
        Dim.from_json(text)


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)


def dims(low: int) -> st.SearchStrategy[Dim]:
    dynamic = st.builds(Dim, name=st.none() | NAMES, divisor=st.sampled_from([1, 2, 8, 1024]))
    return st.builds(Dim, size=st.integers(low, 2**31 - 1)) | dynamic


@st.composite
def tensors(draw: st.DrawFn) -> TensorType:
    rank = draw(st.integers(1, 5))
    dtype = draw(st.sampled_from(list(DTYPES)))
    return TensorType(
        dtype=dtype,
        shape=tuple(draw(st.lists(dims(1), min_size=rank, max_size=rank))),
        strides=tuple(draw(st.lists(dims(0), min_size=rank, max_size=rank))),
        alignment=element_bytes(dtype) * draw(st.sampled_from([1, 2, 16])),
        stride_bits=draw(st.sampled_from([32, 64])),
    )


POINTERS = st.sampled_from(list(DTYPES)).map(lambda dtype: PointerType(dtype=dtype, alignment=4 * element_bytes(dtype)))


@settings(deadline=None, max_examples=60)
@given(tensors() | POINTERS | st.sampled_from(SCALAR_DTYPES).map(lambda dtype: ScalarType(dtype=dtype)))
def test_round_trip(value: ArgumentType) -> None:
    text = format_argument(value)
    assert parse_argument(text, where="K") == value
    assert parse_argument("  " + text.replace(",", " ,  "), where="K") == value
    assert argument_from_json(encode(value)) == value


@settings(deadline=None, max_examples=60)
@given(st.text("f32[]MN,:;?%@<>ptrsi8 .", max_size=20))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    caught: ConfigError | None = None
    try:
        value = parse_argument(text, where="K")
    except ConfigError as error:
        caught = error
    if caught is None:
        assert parse_argument(format_argument(value), where="K") == value
    else:
        assert caught.faults[0].detail.endswith("^")
        assert caught.faults[0].fix
