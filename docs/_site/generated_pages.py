"""Pages nobody writes by hand: the API reference from ``__all__`` and docstrings, the shell's commands, the gallery from examples/.

Convention: a public name is documented once, in the lowest public module that exports it, and read from the source files, so that no
module is imported; commands are what ``--help`` prints. Hooks of MkDocs start with ``on_``.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "poscod"
EXAMPLES = ROOT / "examples"
PICTURES = "images/examples"


class Name(NamedTuple):
    """A public name: the module that exports it, and the module that defines it."""

    module: str
    name: str
    origin: str


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Return the public modules of the package and their files, folders before the names at the top.

    Examples
    --------
    >>> found = modules()
    >>> found["poscod.metrics"].name, list(found)[-1]
    ('__init__.py', 'poscod')
    """
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in parts):
            found[".".join((source.name, *parts))] = path
    return dict(sorted(found.items(), key=lambda item: (-item[0].count("."), item[0])))


def exported(path: Path) -> list[str]:
    """Return ``__all__`` of a file, or nothing.

    Examples
    --------
    >>> exported(SOURCE / "rule.py")
    ['Promise', 'Rule']
    """
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    return []


def origin(module: str, name: str, source: Path = SOURCE) -> str:
    """Follow imports to the module that defines a name, at most one step out of the package.

    Examples
    --------
    >>> origin("poscod.metrics", "auroc"), origin("poscod", "POSCOD")
    ('poscod.metrics._values', 'poscod.model._poscod')
    """
    for node in ast.walk(ast.parse(_file(module, source).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    inside = node.module.split(".")[0] == source.name
                    return origin(node.module, alias.name, source) if inside else node.module
    return module


def public_names(source: Path = SOURCE) -> list[Name]:
    """Return every public name once.

    Examples
    --------
    >>> [name.module for name in public_names() if name.name == "POSCOD"]
    ['poscod.model']
    """
    seen, names = set(), []
    for module, path in modules(source).items():
        for name in exported(path):
            if name.startswith("__"):
                continue
            key = (origin(module, name, source), name)
            if key not in seen:
                seen.add(key)
                names.append(Name(module, name, key[0]))
    return names


def api_pages(source: Path = SOURCE) -> dict[str, str]:
    """Return the pages of the API reference by path."""
    by_module: dict[str, list[str]] = {}
    for name in sorted(public_names(source), key=lambda name: _constant(name, source) is not None):
        by_module.setdefault(name.module, []).append(_entry(name, source))
    pages, rows = {}, []
    for module in sorted(by_module):
        docstring = ast.get_docstring(ast.parse(modules(source)[module].read_text(encoding="utf-8"))) or ""
        text = "\n\n".join(by_module[module])
        page = f"{module.partition('.')[2].replace('.', '-')}.md"
        pages[f"api/{page}"] = f"---\ntitle: {module}\n---\n\n# `{module}`\n\n{_prose(docstring)}\n\n{text}\n"
        rows.append(f"| [`{module}`]({page}) | {_prose(docstring).split(chr(10) * 2)[0].replace(chr(10), ' ')} |")
    main = ", ".join(
        f"[`{name}`][{origin(source.name, name, source)}.{name}]"
        for name in exported(source / "__init__.py")
        if not name.startswith("__")
    )
    pages["api/index.md"] = (
        "# API reference\n\nEvery public name, once, from its docstring. The main names are also at the top of the package: "
        f"{main}.\n\n| module | what it is |\n|---|---|\n" + "\n".join(rows) + "\n"
    )
    return pages


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Walk through the commands of a parser and the commands of those.

    Examples
    --------
    >>> from poscod.cli._main import build_parser
    >>> names = [command.prog for command in commands(build_parser())]
    >>> names[:3], "poscod bench run" in names
    (['poscod demo', 'poscod fit', 'poscod predict'], True)
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from commands(command)


def command_page() -> str:
    """Return the page of all commands: what each one's help says."""
    from poscod.cli._main import build_parser

    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update(COLUMNS="86", NO_COLOR="1")
    try:
        parser = build_parser()
        entries = [f"## {command.prog}\n\n```text\n{command.format_help()}```\n" for command in commands(parser)]
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    return (
        "# Every command and its options\n\nWhat `poscod COMMAND --help` prints. How they are used together: [the shell](cli.md).\n\n"
        + "\n".join(entries)
    )


def example_pages(folder: Path = EXAMPLES, docs: Path = ROOT / "docs") -> dict[str, str]:
    """Return the gallery: one page per script with its docstring, its picture and its code."""
    pages, cards = {}, []
    for path in sorted(folder.glob("[!_]*.py"), key=lambda path: (path.stem != "quickstart", path.stem)):
        text = path.read_text(encoding="utf-8")
        title, _, rest = (ast.get_docstring(ast.parse(text)) or path.stem).partition("\n")
        picture = "images/demo.svg" if path.stem == "quickstart" else f"{PICTURES}/{path.stem}.svg"
        shown = f"![{title}](../{picture})\n\n" if (docs / picture).is_file() else ""
        code = re.sub(r'\A""".*?"""\n+', "", text, flags=re.S)
        heading = title.rstrip(".")
        pages[f"examples/{path.stem}.md"] = (
            f"# {heading}\n\n{_prose(rest.strip())}\n\n{shown}Run it: `python examples/{path.name}`\n\n"
            f'```python title="examples/{path.name}"\n{code.rstrip()}\n```\n'
        )
        cards.append(f"## [{heading}]({path.stem}.md)\n\n{_prose(rest.strip())}\n\n{shown}")
    pages["examples/index.md"] = (
        "# Examples\n\nScripts of the folder `examples`: each runs in under a minute, is run by the tests, and ends in the picture "
        "shown here. `python examples/NAME.py [FOLDER]` writes its picture to FOLDER (`demo-output` unless told).\n\n"
        + "\n".join(cards)
    )
    return pages


def _entry(name: Name, source: Path) -> str:
    """Return the Markdown of one name: its docstring, the keys of a mapping, or the library that defines it."""
    heading = f"## `{name.name}` {{ #{name.module}.{name.name} }}\n\n"
    if name.origin.split(".")[0] != source.name:
        return f"{heading}The same object as `{name.origin}.{name.name}`."
    if keys := _keys(_constant(name, source)):
        return f"{heading}Mapping with the keys {', '.join(f'`{key}`' for key in keys)}."
    return f"::: {name.module}.{name.name}"


def _constant(name: Name, source: Path) -> ast.expr | None:
    """Return the expression a constant is assigned, None for functions, classes and foreign names."""
    if name.origin.split(".")[0] != source.name:
        return None
    for node in ast.parse(_file(name.origin, source).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name.name for target in targets):
            return getattr(node, "value", None)
    return None


def _keys(value: ast.expr | None) -> list[str]:
    """Return the keys of a dictionary in the source, else nothing."""
    keys = value.keys if isinstance(value, ast.Dict) else []
    return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


def _file(module: str, source: Path) -> Path:
    """Return the file of a module."""
    folder = source.parent.joinpath(*module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def _prose(docstring: str) -> str:
    r"""Return a docstring as Markdown: sections in bold, references as a list.

    Examples
    --------
    >>> print(_prose("What it is.\n\nReferences\n----------\n.. [1] A paper."))
    What it is.
    <BLANKLINE>
    **References**
    <BLANKLINE>
    [1] A paper.
    """
    text = re.sub(r"^(\w+)\n-{3,}\n", r"**\1**\n\n", docstring.strip(), flags=re.M)
    return re.sub(r"^\.\. (\[\d+\])", r"\1", text, flags=re.M)


def on_config(config: Any) -> Any:
    """Add the generated pages to the navigation."""
    gallery = [path for path in example_pages() if not path.endswith("index.md")]
    config["nav"].insert(2, {"Examples": ["examples/index.md", *gallery]})
    reference = sorted(path for path in api_pages() if not path.endswith("index.md"))
    config["nav"].append({"API": ["api/index.md", *reference]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for path, text in {**api_pages(), **example_pages(), "commands.md": command_page()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Colour sessions as sessions: blocks that start with a prompt are Python consoles."""
    return re.sub(r"^( *)```python\n(?=\1>>>)", r"\1```pycon\n", markdown, flags=re.M)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Tidy what numpydoc leaves in the reference: parameters without a sentence, references in reStructuredText."""
    if not page.file.src_uri.startswith("api/"):
        return html
    html = re.sub(r"\.\. (\[\d+\])", r"\1", html)
    return re.sub(r"\)\s*\u2013\s*(?=(<div class=\"doc-md-description\">\s*</div>\s*)?</li>)", ")", html)
