"""Custom classes are found and hashed without importing them."""

import hashlib
import sys
from importlib.machinery import PathFinder

import pytest

from ablate.config import ModelConfig
from ablate.config.resolve import resolve_row
from ablate.custom.faults import describe
from ablate.custom.reference import Reference, parse_reference
from ablate.custom.source import pin_reference, source_hash
from ablate.errors import Fault
from ablate.formatting import setting_text
from ablate.parts.variant import VariantName, class_fields, classes_of

MINE = b"class Mine:\n    pass\n\nclass Other:\n    class Deep:\n        pass\n"
PIN = hashlib.sha256(MINE).hexdigest()[:12]
EXPLODES = b"raise RuntimeError('was imported')\n" + MINE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module, neither the working directory nor on Python's path."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "mymodule.py").write_bytes(MINE)
    return beside


def fault(written, folder):
    with pytest.raises(ValueError) as caught:
        pin_reference(parse_reference(written), folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- references ---


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("mymodule:Mine", Reference("mymodule", "Mine")),
        ("my.pack_age.m1:Mine2", Reference("my.pack_age.m1", "Mine2")),
        (f"mymodule:Mine@{PIN}", Reference("mymodule", "Mine", PIN)),
        *((name, None) for name in (
            "full", "mymodule", "mymodule:", ":Mine", "my-module:Mine", "mymodule:Mine.Deep", ".mymodule:Mine",
            "mymodule:Mine@123", "a:b:c", "mymodule: Mine", "1a:B", "", 1, None, True,
        )),
    ],
)  # fmt: skip
def test_a_reference_is_a_module_a_colon_and_a_class(written, expected):
    assert parse_reference(written) == expected
    if expected is not None:
        assert str(expected) == written


@pytest.mark.parametrize("text", ["mymodule:Mine", f"mymodule:Mine@{PIN}", f"my.module:Mine@{PIN}"])
def test_a_setting_is_shown_without_the_hash(text):
    shown = text.partition("@")[0]
    assert setting_text(text) == shown
    assert setting_text(["full", text]) == f"full/{shown}"
    assert str(Fault(f"attention={text} is wrong")) == f"attention={shown} is wrong"


@pytest.mark.parametrize(
    "text", ["1/sqrt(d_k)", "a@0123456789ab", f"a:b@{PIN}0", "https://a:b@host"]
)
def test_other_text_is_shown_as_it_is(text):
    assert setting_text(text) == text


@pytest.mark.parametrize("name", sorted(class_fields(ModelConfig)))
def test_references_lists_the_custom_classes_of_a_config(name):
    assert classes_of(resolve_row({name: f"mymodule:Mine@{PIN}"})) == (
        Reference("mymodule", "Mine", PIN),
    )
    assert classes_of(resolve_row({})) == ()


OWN_CLASS = "must be full or local, or a class of your own as module:Class"
OWN_FUNCTION = "must be full or local, or a function of your own as module:function"


@pytest.mark.parametrize(
    ("value", "is_function", "message"),
    [
        ("locall", False, f'"locall" is not allowed: {OWN_CLASS}; did you mean "local"?'),
        ("locall", True, f'"locall" is not allowed: {OWN_FUNCTION}; did you mean "local"?'),
        ("mla", False, f'"mla" is not allowed: {OWN_CLASS}; did you mean the field "kv_rank"?'),
    ],
)
def test_other_values_are_errors_with_the_nearest_match(value, is_function, message):
    with pytest.raises(ValueError) as caught:
        VariantName(("full", "local"), "", is_function, {"mla": "kv_rank"}).check(value)
    assert str(caught.value) == message


# --- search order ---


def test_a_module_beside_the_study_is_pinned_to_the_hash_of_its_source(folder):
    assert source_hash(MINE) == PIN
    assert pin_reference(Reference("mymodule", "Mine"), folder) == (
        Reference("mymodule", "Mine", PIN),
        MINE,
    )
    assert Reference("mymodule", "Mine", PIN).file == f"{PIN}.py"


def test_search_order_is_study_folder_then_working_directory_then_path(
    folder, tmp_path, monkeypatch
):
    on_path = tmp_path / "path"
    on_path.mkdir()
    monkeypatch.syspath_prepend(on_path)
    sources = {place: MINE + str(place).encode() for place in ("#path", "#here", "#beside")}
    wanted = Reference("module_of_three", "Mine")
    (on_path / "module_of_three.py").write_bytes(sources["#path"])
    assert pin_reference(wanted, folder)[1] == sources["#path"]
    (tmp_path / "elsewhere" / "module_of_three.py").write_bytes(sources["#here"])
    assert pin_reference(wanted, folder)[1] == sources["#here"]
    (folder / "module_of_three.py").write_bytes(sources["#beside"])
    assert pin_reference(wanted, folder)[1] == sources["#beside"]


@pytest.mark.parametrize("marked", [True, False], ids=["with __init__.py", "without"])
def test_a_module_may_be_nested_in_packages(folder, marked):
    (folder / "pack" / "deep").mkdir(parents=True)
    (folder / "pack" / "deep" / "mine.py").write_bytes(MINE)
    if marked:
        (folder / "pack" / "__init__.py").write_bytes(EXPLODES)
        (folder / "pack" / "deep" / "__init__.py").write_bytes(b"")
    assert pin_reference(Reference("pack.deep.mine", "Mine"), folder)[1] == MINE


def test_a_module_may_be_a_package(folder):
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_bytes(MINE)
    assert pin_reference(Reference("pack", "Other"), folder)[1] == MINE


def test_a_method_that_a_class_must_define_is_named():
    class Base:
        def step(self):
            raise NotImplementedError

    with pytest.raises(NotImplementedError) as caught:
        Base().step()
    fault = describe([Reference("mine", "SignMomentum")], caught.value)
    assert str(fault) == "mine:SignMomentum: NotImplementedError; define step"


def test_pinning_imports_nothing(folder):
    (folder / "explodes.py").write_bytes(EXPLODES)
    before = set(sys.modules)
    assert pin_reference(Reference("explodes", "Mine"), folder)[0].digest == source_hash(EXPLODES)
    assert set(sys.modules) == before


def test_a_written_hash_must_match_the_source(folder):
    assert pin_reference(Reference("mymodule", "Mine", PIN), folder)[0].digest == PIN
    (folder / "mymodule.py").write_bytes(MINE + b"#")
    now = source_hash(MINE + b"#")
    assert (
        fault(f"mymodule:Mine@{PIN}", folder)
        == f"mymodule:Mine: the source of mymodule has the hash {now}, and not {PIN}"
    )


# --- errors ---


def test_a_missing_module_is_an_error_with_the_nearest_match(folder):
    nowhere = "not found beside the study or on Python's path"
    assert fault("mymodul:Mine", folder) == f'module mymodul {nowhere}; did you mean "mymodule"?'
    (folder / "zzz.py").mkdir()
    assert fault("zzz:Mine", folder) == f"module zzz {nowhere}"
    (folder.parent / "elsewhere" / "zzzz.py").write_bytes(MINE)
    assert fault("zzz:Mine", folder) == f'module zzz {nowhere}; did you mean "zzzz"?'


def test_a_missing_submodule_is_an_error_with_the_nearest_match(folder):
    (folder / "pack").mkdir()
    (folder / "pack" / "mine.py").write_bytes(MINE)
    expected = "module pack.mime not found beside the study or on Python's path"
    assert fault("pack.mime:Mine", folder) == f'{expected}; did you mean "mine"?'
    assert fault("pack.mine.deeper:Mine", folder).startswith("module pack.mine.deeper not found ")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "mymodule:Min",
            'mymodule:Min: module mymodule has no class Min; did you mean "Mine"?',
        ),
        ("mymodule:Deep", "mymodule:Deep: module mymodule has no class Deep; it has Mine or Other"),
        ("empty:Mine", "empty:Mine: module empty has no class Mine; it defines no classes"),
        (
            "mymodule:Othr",
            'mymodule:Othr: module mymodule has no class Othr; did you mean "Other"?',
        ),
    ],
)
def test_a_missing_class_is_an_error_with_the_existing_ones(folder, written, message):
    (folder / "empty.py").write_bytes(b"")
    assert fault(written, folder) == message


@pytest.mark.parametrize("source", [b"class Mine: pass\n\0", b"# coding: nonsense\n"])
def test_a_module_with_invalid_source_is_an_error(folder, source):
    (folder / "broken.py").write_bytes(source)
    assert fault("broken:Mine", folder).startswith(
        "broken:Mine: module broken is not valid Python: "
    )


def test_a_module_in_another_encoding_is_an_error(folder):
    (folder / "broken.py").write_bytes(b"\xff\xfe")
    assert "(unicode error)" in fault("broken:Mine", folder)


def test_namespace_packages_and_builtin_modules_have_no_source(folder):
    (folder / "hollow").mkdir()
    assert fault("hollow:Mine", folder) == "module hollow has no Python source file"
    assert fault("sys:Mine", folder) == "module sys has no Python source file"


def test_a_module_known_only_to_a_custom_finder_is_found(folder, monkeypatch):
    """Some editable installs work in this way."""
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "hooked.py").write_bytes(b"class Mine:\n    pass\n")

    class Finder:
        def find_spec(self, name, path=None, target=None):
            return (
                PathFinder.find_spec(name, [str(folder / "elsewhere")])
                if name == "hooked"
                else None
            )

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert pin_reference(Reference("hooked", "Mine"), folder)[1] == b"class Mine:\n    pass\n"


def test_a_file_name_instead_of_a_module_name_is_an_error(folder):
    assert (folder / "mine.py").write_bytes(b"") == 0
    assert fault("mine.py:Mine", folder) == (
        "module mine.py not found; write mine:Mine, without .py"
    )
    assert fault("absent.py:Mine", folder) == (
        "module absent not found; write absent:Mine, without .py"
    )


def test_a_class_defined_inside_an_if_is_not_found(folder):
    (folder / "hidden.py").write_bytes(b"if True:\n    class Mine:\n        pass\n")
    assert "has no class Mine" in fault("hidden:Mine", folder)


# --- imports ---


@pytest.mark.parametrize(
    ("line", "named"),
    [("import helper", "helper"), ("from helper import x", "helper"), ("import helper.deep as h", "helper.deep"),
     ("def later():\n    import helper", "helper"), ("from . import helper", "."), ("from .helper import x", ".helper"),
     ("import there.deep", "there.deep")],
)  # fmt: skip
def test_a_module_that_imports_a_file_beside_it_is_refused_with_its_line(folder, line, named):
    (folder / "helper.py").write_text("raise RuntimeError('was imported')")
    (folder / "there").mkdir()
    (folder / "mymodule.py").write_bytes(b"import json, pydantic\n" + line.encode() + b"\n" + MINE)
    number = 2 + line.count("\n")
    assert fault("mymodule:Mine", folder).startswith(
        f"mymodule:Mine: mymodule.py:{number} imports {named}, but only the"
    )


def test_a_module_may_import_what_python_finds_by_itself_even_if_a_file_beside_it_has_the_same_name(
    folder, tmp_path, monkeypatch
):
    for name in ("json", "pydantic", "on_the_path"):
        (folder / f"{name}.py").write_text("raise RuntimeError('was imported')")
    on_path = tmp_path / "path"
    on_path.mkdir()
    monkeypatch.syspath_prepend(on_path)
    (on_path / "on_the_path.py").write_text("")
    (folder / "mymodule.py").write_bytes(
        b"import json, pydantic, on_the_path, missing_everywhere\n" + MINE
    )
    assert pin_reference(Reference("mymodule", "Mine"), folder)[0].digest
