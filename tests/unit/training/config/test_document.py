"""Reading YAML: lines, numbers, anchors, and every way a file can be unreadable."""

from __future__ import annotations

import pathlib

import pytest

from stepherd.training.config.document import parse_document, read_document, scalar
from stepherd.training.config.tree import Items, Place, Scalar, Section

HERE = Place((), "here", (0, 0))


def read(text: str) -> Section:
    root, problems = parse_document(text, "f.yaml")
    assert problems == []
    assert root is not None
    return root


def complaint(text: str) -> str:
    _, problems = parse_document(text, "f.yaml")
    [problem] = problems
    return problem.text


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("+7", 7),
        ("0", 0),
        ("500_000", 500_000),
        ("0x10", 16),
        ("1e-3", 1e-3),
        ("3e-4", 3e-4),
        ("5.0e5", 5e5),
        ("1E5", 1e5),
        ("1e+5", 1e5),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1.5", -1.5),
        (".inf", float("inf")),
        ("-.INF", -float("inf")),
        ("true", True),
        ("Off", False),
        ("yes", True),
        ("", None),
        ("~", None),
        ("null", None),
    ],
)
def test_a_plain_word_is_read_as_yaml_1_2_reads_it(written: str, value: object) -> None:
    read_value = scalar(written, HERE).value

    assert read_value == value
    assert type(read_value) is type(value)


@pytest.mark.parametrize(
    "written", ["007", "12:30", "2024-05-01", "1.0.3", "5M", "1,5", "1e", "inf", "nan", "e5", "_1"]
)
def test_words_that_only_look_like_numbers_stay_text(written: str) -> None:
    assert scalar(written, HERE).value == written


def test_not_a_number_is_read_as_a_number() -> None:
    value = scalar(".nan", HERE).value

    assert isinstance(value, float)
    assert value != value


def test_a_number_of_thousands_of_digits_stays_text() -> None:
    assert scalar("9" * 6000, HERE).value == "9" * 6000


def test_every_key_knows_its_line_and_path() -> None:
    root = read("a:\n  b: 1\n\n  c:\n    - x\n    - y\n")

    section = root["a"]
    assert isinstance(section, Section)
    assert section.place.label == "f.yaml:1"
    assert section["b"].place.path == ("a", "b")
    assert section["b"].place.label == "f.yaml:2"
    items = section["c"]
    assert isinstance(items, Items)
    assert [item.place.label for item in items] == ["f.yaml:5", "f.yaml:6"]


def test_quotes_and_str_tags_make_text() -> None:
    root = read("a: '5'\nb: !!str 5\nc: 5\nd: |\n  5\n")

    scalars = [root[key] for key in "abcd"]
    assert [each.value for each in scalars if isinstance(each, Scalar)] == ["5", "5", 5, "5\n"]
    assert [each.quoted for each in scalars if isinstance(each, Scalar)] == [True, True, False, True]


def test_standard_tags_on_plain_values_are_taken() -> None:
    assert [value.value for value in read("a: !!int 5\nb: !!float 5e1\n").values() if isinstance(value, Scalar)] == [
        5,
        50,
    ]


def test_blank_and_null_are_told_apart() -> None:
    root = read("a:\nb: null\n")

    blank, null = root["a"], root["b"]
    assert isinstance(blank, Scalar)
    assert isinstance(null, Scalar)
    assert blank.is_blank
    assert not null.is_blank


def test_a_byte_order_mark_and_windows_line_ends_are_harmless(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")

    root, problems = read_document(file)

    assert problems == []
    assert root is not None
    assert root["b"].place.label == f"{file}:2"


def test_an_alias_gives_the_section_of_its_anchor() -> None:
    root = read("a: &x\n  k: 1\nb: *x\n")

    assert root["b"] is root["a"]


def test_an_alias_of_a_value_is_a_value_at_its_own_line() -> None:
    root = read("a: &x 5\nb: *x\n")

    assert root["b"].place.label == "f.yaml:2"
    assert root["b"].place.path == ("b",)


def test_merge_keys_fill_in_and_explicit_keys_win() -> None:
    root = read("one: &one {a: 1, b: 1, c: 1}\ntwo: &two {a: 2, b: 2, d: 2}\nall:\n  <<: [*one, *two]\n  b: 3\n")

    merged = root["all"]
    assert isinstance(merged, Section)
    assert {key: value.value for key, value in merged.items() if isinstance(value, Scalar)} == {
        "a": 1,
        "b": 3,
        "c": 1,
        "d": 2,
    }
    assert merged["a"].place.label == "f.yaml:1"


def test_aliases_within_aliases_do_not_explode() -> None:
    lines = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{l: *a{n - 1}, r: *a{n - 1}}}" for n in range(1, 60)]

    assert len(read("\n".join(lines))) == 60


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml:1: the file is empty; name your behaviors below a 'behaviors:' line"),
        ("# only a comment\n", "f.yaml:1: the file is empty; name your behaviors below a 'behaviors:' line"),
        ("- a\n", "f.yaml:1: expected sections such as 'behaviors:', found a list"),
        ("hello\n", "f.yaml:1: expected sections such as 'behaviors:', found a single value"),
        ("a:\n\tb: 1\n", "f.yaml:2: not YAML: a tab; YAML is indented with spaces only"),
        ("a:\n  b: 1\n c: 1\n", "f.yaml:3: not YAML: this line is not indented like the lines it belongs to"),
        ("a: b: c\n", "f.yaml:1: not YAML: a ':' that cannot stand here; check the indentation and the line above"),
        ("a: 1\nb\n", "f.yaml:3: not YAML: a key without its ':'"),
        ("a: 1\nb: {c: 1\n", "f.yaml:2: not YAML: a bracket opens here and is not closed, or misses a ','"),
        ("a: 1\nb: 'c\n\n", "f.yaml:2: not YAML: a quote or bracket opens here and is never closed"),
        ("a: 1\n---\nb: 1\n", "f.yaml:2: not YAML: a second document ('---'); put everything into one"),
        ("a: *x\n", "f.yaml:1: not YAML: an alias (*name) whose anchor (&name) is not written above it"),
        ("a: @x\n", "f.yaml:1: not YAML: a character that needs quotes around the whole value"),
        ('a: "C:\\Games"\n', "f.yaml:1: not YAML: inside double quotes a backslash is special; use single quotes"),
        ("a: 1\nb: \x01\n", "f.yaml:2: the character '\\x01' is not allowed in YAML"),
        ("a: " + "[" * 700, "f.yaml:1: the sections are nested too deeply to be settings"),
        ("a: 1\n? [k]\n: 1\n", "f.yaml:2: a key must be a single word"),
        ("~: 1\n", "f.yaml:1: a key must be a single word"),
        (
            "a: !!python/name:os.system x\n",
            "f.yaml:1: a: the tag !!python/name:os.system is not supported; write a plain value",
        ),
        ("a: &x\n  b: *x\n", "f.yaml:2: a.b: contains itself through an alias"),
        ("a:\n  <<: 3\n", "f.yaml:2: a: '<<' merges sections; give it the alias of one (*name) or a list of aliases"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", "f.yaml:4: a.b: is written twice, here and on line 2; keep one"),
    ],
)
def test_what_yaml_refuses_is_said_with_its_line_and_advice(text: str, said: str) -> None:
    assert complaint(text) == said


def test_every_repeated_key_is_reported() -> None:
    _, problems = parse_document("a: 1\na: 2\nb: 1\nb: 2\n", "f.yaml")

    assert [problem.text for problem in problems] == [
        "f.yaml:2: a: is written twice, here and on line 1; keep one",
        "f.yaml:4: b: is written twice, here and on line 3; keep one",
    ]


def test_a_missing_file_names_the_one_that_was_meant(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cartpole.yaml").write_text("a: 1\n")

    root, [problem] = read_document(tmp_path / "cartpol.yaml")

    assert root is None
    assert problem.text.endswith(f"cartpol.yaml: there is no such file; did you mean '{tmp_path / 'cartpole.yaml'}'?")


def test_a_missing_file_in_a_missing_folder_is_missing(tmp_path: pathlib.Path) -> None:
    _, [problem] = read_document(tmp_path / "none" / "f.yaml")

    assert problem.text.endswith("f.yaml: there is no such file")


def test_a_folder_is_no_file(tmp_path: pathlib.Path) -> None:
    _, [problem] = read_document(tmp_path)

    assert problem.text == f"{tmp_path}: is a folder; name the YAML file inside it"


def test_a_name_no_file_can_have_is_reported() -> None:
    _, [problem] = read_document(pathlib.Path("a\0b.yaml"))

    assert "cannot be read" in problem.text


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"a: 1\nb: \xff\n", ":2: the byte 0xff is not UTF-8; save the file as UTF-8"),
        ("a: 1\n".encode("utf-16"), ":1: the file is UTF-16, not UTF-8; save it as UTF-8"),
    ],
)
def test_a_file_in_another_encoding_is_reported(tmp_path: pathlib.Path, raw: bytes, said: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(raw)

    _, [problem] = read_document(file)

    assert problem.text == f"{file}{said}"
