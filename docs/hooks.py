"""What mkdocs makes in addition to the pages in docs/: the home page from README.md, CONTRIBUTING.md and its like, the
reference of all settings from the fields that declare them; and for programs that read, each page as Markdown next to
its HTML, with llms.txt (https://llmstxt.org), which lists them."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from mkdocs.structure.files import File, Files

from manyheads.cli.verbs import VERBS, choices, settings_of
from manyheads.config.conversion import KIND_WORDS, choices_of, split_optional
from manyheads.config.facts import Setting
from manyheads.config.sentences import format_value

ROOT = Path(__file__).parents[1]
HOME = {  # pages that lie outside of docs/
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_read: dict[str, tuple[str, str]] = {}  # title and Markdown of each page, by its file


def on_files(files: Files, config: Any) -> Files:
    made = {page: (ROOT / source).read_text(encoding="utf-8") for page, source in HOME.items()}
    made["reference/settings.md"] = settings_page()
    for page, content in made.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links lead to pages of the site; of files that are not on it, which must exist, the name is left."""
    source = page.file.src_uri
    folder = ROOT if source in HOME else (ROOT / "docs" / source).parent
    here = ("docs" / Path(source)).parent

    def led(match: re.Match[str]) -> str:
        picture, words, target, anchor = match.groups()
        if ":" in target:
            return match[0]
        path = Path(os.path.relpath(folder / target, ROOT))
        if not (ROOT / path).exists() and path.as_posix() not in ("docs/reference/settings.md", *_pages()):
            raise ValueError(f"{source} has a link to {target}, which does not exist")
        on_site = next((f"docs/{name}" for name, file in HOME.items() if path.as_posix() == file), path.as_posix())
        if not on_site.startswith("docs/"):
            return words
        return f"{picture}[{words}]({os.path.relpath(on_site, here)}{anchor or ''})"

    markdown = LINK.sub(led, markdown)
    path = Path(config.site_dir, source)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(markdown, encoding="utf-8")
    _read[source] = (page.title, markdown)
    return markdown.replace("\n```text\n", "\n``` { .text .output }\n")  # not wrapped, as commands are


def on_env(env: Any, config: Any, **_: Any) -> Any:
    """Write llms.txt; all pages have been read by now."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in config.nav:
        for name, entry in section.items():
            lines += [f"## {name}", ""]
            for source in sources(entry):
                title, markdown = _read[source]
                lines.append(f"- [{title}]({source}): {first_sentence(markdown)}")
            lines.append("")
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines), encoding="utf-8")
    return env


def sources(entry: Any) -> Iterator[str]:
    """The files of an entry of the nav: of a page, of a page with its title, or of a section."""
    if isinstance(entry, str):
        yield entry
        return
    for inner in entry.values() if isinstance(entry, dict) else entry:
        yield from sources(inner)


def first_sentence(markdown: str) -> str:
    """The first sentence of prose of a page, without links and marks."""
    prose = re.sub(r"(?m)^#+ .*$", "", re.sub(r"(?ms)^```.*?^```$", "", markdown))
    for block in re.split(r"\n\s*\n", prose):
        if re.match(r"[A-Za-z`*\[]", block) and not block.startswith("[!["):
            plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split())).replace("**", "")
            return re.split(r"(?<=[.?])\s", plain)[0].rstrip(":")
    return ""


def _pages() -> list[str]:
    return [f"docs/{name}" for name in HOME]


def settings_page() -> str:
    """Every setting of every verb, by section. What `train` has is not said again of the other verbs."""
    lines = ["# Settings", "", "Type them as `name=value` after the verb; `manyheads VERB --help` prints the same. "]
    lines.append("")
    known: dict[str, Setting] = {}
    for verb, about in VERBS.items():
        new = {name: one for name, one in settings_of(verb).items() if name not in known or differs(one, known[name])}
        if not new:
            continue
        known |= new
        lines += [f"## {verb}", "", f"{about.help[0].upper()}{about.help[1:]}. Presets, the default first:", ""]
        lines += [f"- `{group}=` {presets(verb, group, default)}" for group, default in about.groups.items()] + [""]
        for section in dict.fromkeys(name.rpartition(".")[0] for name in new):
            lines += [f"### {section}" if section else "### of the run", ""] if verb == "train" else []
            lines += ["| setting | default | values | meaning |", "| --- | --- | --- | --- |"]
            lines += [row(one) for name, one in new.items() if name.rpartition(".")[0] == section]
            lines.append("")
    return "\n".join(lines)


def presets(verb: str, group: str, default: str | None) -> str:
    names = choices(verb, group)
    return ", ".join(f"`{name}`" for name in sorted(names, key=lambda name: name != default))


def differs(one: Setting, other: Setting) -> bool:
    return (one.default, one.facts.help) != (other.default, other.facts.help)


def row(one: Setting) -> str:
    default = format_value(one.default) if one.default not in ("", [], {}) else "empty"
    if isinstance(one.default, dict) and one.default:
        default = " ".join(f"{one.name}.{key}={format_value(value)}" for key, value in one.default.items())
    cells = [f"`{one.name}`", f"`{default}`", ", ".join(values(one)), one.facts.help]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def values(one: Setting) -> Iterator[str]:
    """What may be typed."""
    kind, may_be_null = split_optional(one.kind)
    inner = get_args(kind)[0] if get_origin(kind) is list else kind
    if choices_of(one):
        yield ", ".join(f"`{name}`" for name in choices_of(one))
    elif inner in KIND_WORDS:
        yield KIND_WORDS[inner]
    yield from one.facts.limits()
    if get_origin(kind) is list:
        yield "a list"
    if may_be_null:
        yield "or null"
