"""Check the built site: every internal link and anchor leads somewhere, nothing is fetched from elsewhere.

Run ``python docs/_site/check_links.py [site] [FILE.md ...]``: further files are Markdown outside the site (the README) whose links must
lead to files of the repository. External links are only checked for their form, so that the check needs no network.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches to show a page; a link (<a href>) is followed only on demand.
_FETCHED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
_NO_FETCH = {"canonical", "next", "prev", "alternate"}


class Page(HTMLParser):
    """Anchors of a page, links out of it and files it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what an element declares, links to or loads."""
        values = dict(attrs)
        self.anchors |= {values[name] or "" for name in ("id", "name") if name in values}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        for name in ("src", "href"):
            if (tag, name) in _FETCHED and values.get(name) and values.get("rel") not in _NO_FETCH:
                self.fetched.append(values[name] or "")


def check_site(site: Path) -> list[str]:
    """Return one sentence per broken link of a built site.

    Parameters
    ----------
    site : Path
        Folder with the HTML files.

    Returns
    -------
    problems : list of str

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.html").write_text('<a href="b.html#top">b</a> <a href="c.html">c</a> <img src="https://x.org/i.png">')
    >>> _ = (folder / "b.html").write_text('<p id="bottom">')
    >>> for line in check_site(folder): print(line)
    a.html loads https://x.org/i.png from another place.
    a.html links to c.html, which is not there.
    a.html links to b.html#top, an anchor that page does not have.
    """
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    missing, dangling, foreign = [], [], []
    for path, page in pages.items():
        here = path.relative_to(site).as_posix()
        for url in page.fetched + page.links:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                if url in page.fetched and parts.scheme != "data":
                    foreign.append(f"{here} loads {url} from another place.")
                elif parts.scheme not in {"data", "mailto"} and not well_formed(url):
                    missing.append(f"{here} links to {url}, which is no proper address.")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if path.name == "404.html" and parts.path.startswith("/"):
                continue  # written for the root of a server
            if not target.is_file():
                missing.append(f"{here} links to {url}, which is not there.")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                dangling.append(f"{here} links to {url}, an anchor that page does not have.")
    return foreign + missing + dangling


def check_markdown(path: Path) -> list[str]:
    """Return one sentence per link of a Markdown file that leads to no file of the repository."""
    problems = []
    for url in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        parts = urlsplit(url)
        if parts.scheme:
            if not well_formed(url):
                problems.append(f"{path.name} links to {url}, which is no proper address.")
        elif parts.path and not (path.parent / parts.path).exists():
            problems.append(f"{path.name} links to {url}, which is not there.")
    return problems


def well_formed(url: str) -> bool:
    """Tell whether an external address can be one.

    Examples
    --------
    >>> [well_formed(url) for url in ("https://arxiv.org/abs/2301.12386", "https:/arxiv.org", "http://x y.org")]
    [True, False, False]
    """
    parts = urlsplit(url)
    return parts.scheme in {"http", "https"} and re.fullmatch(r"[\w.-]+\.\w+(:\d+)?", parts.netloc) is not None


def main() -> None:
    """Check the site, then the further files; exit with the list of problems."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    problems = check_site(site) + [line for name in sys.argv[2:] for line in check_markdown(Path(name))]
    if problems:
        sys.exit("\n".join(problems))
    sys.stdout.write(f"{len(list(site.rglob('*.html')))} pages, every link leads somewhere.\n")


if __name__ == "__main__":
    main()
