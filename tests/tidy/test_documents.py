"""Links lead somewhere, and what changed is told in fragments that a release can put together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidy.source_tree import ROOT, Finding, check

LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")

FRAGMENTS = ROOT / "changelog.d"
FRAGMENT_NAME = re.compile(r"\d+\.(added|changed|fixed|removed)\.md")


def documents() -> list[Path]:
    """Return every page that people read."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted(FRAGMENTS.glob("*.md"))]


def find_dead_links(page: Path, root: Path) -> Iterator[Finding]:
    """Yield each relative link that leads to no file, or to no heading of a page."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(root).as_posix()
    visible = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for link in LINK.finditer(visible):
        if ELSEWHERE.match(link[1]):
            continue
        line = visible.count("\n", 0, link.start()) + 1
        path, _, anchor = link[1].partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(root.resolve()) or not target.exists():
            yield Finding(name, line, f"{link[1]} leads nowhere", "links are relative to the page they stand on")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield Finding(name, line, f"{path or name} has no heading #{anchor}", "name one that is there")


def anchors(text: str) -> set[str]:
    """Return what a link can name in a page: each heading in small letters, with hyphens, without punctuation."""
    headings = HEADING.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def find_bad_fragments(folder: Path) -> Iterator[Finding]:
    """Yield each file of `changelog.d` that a release could not take over as it is."""
    for file in sorted(folder.iterdir()):
        if file.name == "README.md":
            continue
        where = f"{folder.name}/{file.name}"
        if not FRAGMENT_NAME.fullmatch(file.name):
            remedy = "name it <issue number>.<added|changed|fixed|removed>.md"
            yield Finding(where, 1, "not the name of a fragment", remedy)
            continue
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not lines:
            yield Finding(
                where, 1, "empty", "say in a sentence what users can do now, or what no longer happens to them"
            )
        for number, line in enumerate(lines, 1):
            if not line.startswith(("- ", "  ")):
                yield Finding(where, number, "not an item of a list", "begin it with `- `, and continue it indented")


def test_every_relative_link_leads_somewhere() -> None:
    assert documents(), "there is nothing to read"

    check(finding for page in documents() for finding in find_dead_links(page, ROOT))


def test_every_changelog_fragment_is_well_formed() -> None:
    check(find_bad_fragments(FRAGMENTS))


@pytest.mark.parametrize("link", ["missing.md", "../outside.md", "page.md#nowhere", "#nowhere", "docs/missing.md#top"])
def test_a_dead_link_is_caught(tmp_path: Path, link: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A *title*, really\n\nRead [this]({link}).\n", encoding="utf-8")

    assert [finding.line for finding in find_dead_links(page, tmp_path)] == [3]


@pytest.mark.parametrize("link", ["page.md", "#a-title-really", "page.md#a-title-really", "https://example.org/x", "."])
def test_a_link_that_leads_somewhere_is_fine(tmp_path: Path, link: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A *title*, really\n\nRead [this]({link}); `[not](this)`.\n", encoding="utf-8")

    assert not list(find_dead_links(page, tmp_path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("2.new.md", "- A thing."),
        ("added.md", "- A thing."),
        ("2.added.txt", "- A"),
        ("2.added.md", ""),
        ("2.fixed.md", "Prose."),
    ],
)
def test_a_bad_fragment_is_caught(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")

    assert len(list(find_bad_fragments(tmp_path))) == 1


def test_a_good_fragment_is_fine(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# How\n", encoding="utf-8")
    (tmp_path / "12.added.md").write_text("- A thing that\n  takes two lines.\n- Another.\n", encoding="utf-8")

    assert not list(find_bad_fragments(tmp_path))
