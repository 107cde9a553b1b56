# SPDX-License-Identifier: Apache-2.0
"""METADATA and WHEEL: fields are changed, the rest is left alone."""

from __future__ import annotations

import email

import pytest

from flydsl_build.config.names import normalized
from flydsl_build.editable.resolution import normalized as normalized_alone
from flydsl_build.errors import ConfigError
from flydsl_build.package.wheel_forms import WheelForm
from flydsl_build.package.wheel_metadata import Headers, escaped

TEXT = """\
Metadata-Version: 2.2
Name: Some.Kernels
Version: 1.0+cu1
Summary:
License: one line,
        another: one
Provides-Extra: test
Requires-Dist: numpy
Requires-Dist: pytest; extra == "test"
Requires-Python: >=3.11
Description-Content-Type: text/markdown
License-File: LICENSE

# Some kernels

Name: not a field
"""


@pytest.mark.parametrize("text", [TEXT, TEXT.partition("\n\n")[0] + "\n", "Name: a\n\n", "Name: a\n\n\n\n"])
def test_what_is_not_changed_stays(text: str) -> None:
    assert Headers(text).text() == text


def test_fields() -> None:
    headers = Headers(TEXT)
    assert (headers.get("name"), headers.get("Summary"), headers.get("Author")) == ("Some.Kernels", "", "")
    assert headers.all("Requires-Dist") == ["numpy", 'pytest; extra == "test"']
    headers.put("Version", "2")
    headers.put("Author", "me")
    headers.add("License-File", "NOTICE")
    headers.remove("license", "Summary")
    message = email.message_from_string(headers.text())
    assert message.items() == [
        ("Metadata-Version", "2.2"),
        ("Name", "Some.Kernels"),
        ("Version", "2"),
        ("Provides-Extra", "test"),
        ("Requires-Dist", "numpy"),
        ("Requires-Dist", 'pytest; extra == "test"'),
        ("Requires-Python", ">=3.11"),
        ("Description-Content-Type", "text/markdown"),
        ("License-File", "LICENSE"),
        ("Author", "me"),
        ("License-File", "NOTICE"),
    ]
    assert message.get_payload() == TEXT.partition("\n\n")[2]


def test_names() -> None:
    assert (normalized("A.-_B"), escaped("A.-_B")) == ("a-b", "a_b")
    # What is copied into environments stands alone and has a copy.
    for name in ("A.-_B", "x__y", "Ünï.Cöde", "a-b", "-"):
        assert normalized_alone(name) == normalized(name)


def changed(form: WheelForm) -> list[tuple[str, str]]:
    """Return the fields that a form changes or adds."""
    before = email.message_from_string(TEXT).items()
    return [field for field in email.message_from_string(form.metadata(TEXT)).items() if field not in before]


def test_a_fat_wheel_has_licence_files_once() -> None:
    assert WheelForm(kind="fat", licenses=()).metadata(TEXT) == WheelForm(kind="fat", licenses=("LICENSE",)).metadata(TEXT) == TEXT
    assert changed(WheelForm(kind="fat", licenses=("LICENSE", "lib/L"))) == [("Metadata-Version", "2.4"), ("License-File", "lib/L")]


def test_a_wheel_for_one_target_has_it_in_the_version() -> None:
    assert changed(WheelForm(kind="per-arch", targets=("gfx9-4-generic",))) == [("Version", "1.0+cu1.gfx9.4.generic")]
    assert changed(WheelForm(kind="per-arch", targets=("gfx942",), build_tag=True)) == []
    assert WheelForm(kind="per-arch", targets=("gfx942",)).version("1.0") == "1.0+gfx942"


def test_a_host_wheel_has_extras() -> None:
    assert changed(WheelForm(kind="host", targets=("gfx942", "gfx9-4-generic"))) == [
        ("Provides-Extra", "device-gfx942"),
        ("Requires-Dist", 'Some.Kernels-device-gfx942==1.0+cu1; extra == "device-gfx942"'),
        ("Provides-Extra", "device-gfx9-4-generic"),
        ("Requires-Dist", 'Some.Kernels-device-gfx9-4-generic==1.0+cu1; extra == "device-gfx9-4-generic"'),
        ("Provides-Extra", "device-all"),
        ("Requires-Dist", 'Some.Kernels-device-gfx942==1.0+cu1; extra == "device-all"'),
        ("Requires-Dist", 'Some.Kernels-device-gfx9-4-generic==1.0+cu1; extra == "device-all"'),
    ]
    with pytest.raises(ConfigError, match=r"project\.optional-dependencies\.device-gfx942: the host wheel has an extra of this name"):
        WheelForm(kind="host", targets=("gfx942",)).metadata(TEXT.replace("Provides-Extra: test", "Provides-Extra: Device_GFX942"))


def test_a_device_wheel_has_nothing_of_the_host_but_its_licence() -> None:
    message = email.message_from_string(WheelForm(kind="device", targets=("gfx942",), licenses=("lib/L",)).metadata(TEXT))
    assert message.items() == [
        ("Metadata-Version", "2.4"),
        ("Name", "Some.Kernels-device-gfx942"),
        ("Version", "1.0+cu1"),
        ("License", "one line,\n        another: one"),
        ("Requires-Python", ">=3.11"),
        ("License-File", "LICENSE"),
        ("Summary", "Code objects of Some.Kernels for gfx942"),
        ("Requires-Dist", "Some.Kernels==1.0+cu1"),
        ("License-File", "lib/L"),
    ]
    assert not str(message.get_payload()).strip()
