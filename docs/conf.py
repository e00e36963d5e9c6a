"""How `make docs` builds these pages: Sphinx, furo and MyST, with nothing fetched from outside.

The pages are plain Markdown that reads the same on a code host. Links to files outside `docs/` stay as they are;
here they become copies of the files, since the built pages travel without the repository.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "src"))

from tenure import __version__  # noqa: E402

project = "tenure"
author = "the tenure authors"
project_copyright = "the tenure authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = f"tenure {release}"
html_copy_source = False
html_theme_options: dict[str, Any] = {"navigation_with_keys": True}

# Anchors as code hosts make them, so that one link works in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# Docstrings are plain text with code between single backquotes.
default_role = "code"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True


DOCUMENTED = ("tenure", "tenure.blocking", "tenure.store", "tenure.testing", "tenure.errors")


def public_names() -> dict[str, str]:
    """Where a thing is documented, by where it is defined: annotations name the latter."""
    names: dict[str, str] = {}
    for module_name in reversed(DOCUMENTED):
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", vars(module)):
            thing = getattr(module, name)
            if getattr(thing, "__module__", "").startswith("tenure."):
                names[f"{thing.__module__}.{thing.__name__}"] = f"{module_name}.{name}"
    return names


def resolve(app: Sphinx, env: Any, node: addnodes.pending_xref, text: nodes.Element) -> nodes.Element | None:
    """A type in a signature: a link to its public name, or, if it has none or is not ours, its name alone."""
    if node.get("refdomain") != "py":
        return None
    public = PUBLIC.get(node["reftarget"])
    if public is not None and public != node["reftarget"]:
        for kind in ("class", "exc"):
            found = env.get_domain("py").resolve_xref(env, node["refdoc"], app.builder, kind, public, node, text)
            if found is not None:
                return found
    return text


PUBLIC = public_names()


class FilesOutside(SphinxTransform):
    """A link to a file that is no page of these leads to a copy of it; one to a folder is its name alone."""

    default_priority = 5

    def apply(self, **kwargs: Any) -> None:
        here = Path(self.env.doc2path(self.env.docname)).parent
        for node in list(self.document.findall(addnodes.pending_xref)):
            target = str(node.get("reftarget", ""))
            if node.get("reftype") != "myst" or "://" in target or not target:
                continue
            found = (here / target.partition("#")[0]).resolve()
            if node.get("refdomain") == "doc" and not found.exists():
                found = found.with_name(found.name + ".md")
            if not found.is_relative_to(ROOT) or (found.is_relative_to(HERE) and not found.is_dir()):
                continue
            if found.is_dir():
                node.replace_self(nodes.literal("", node.astext()))
            elif found.is_file():
                copied = addnodes.download_reference(
                    "", "", *node.children, refdoc=self.env.docname, reftarget=os.path.relpath(found, here)
                )
                node.replace_self(copied)


def plain_text(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings as they are read in an editor: what is indented is code, and what stands between backquotes too."""
    written: list[str] = []
    code = False
    listed = False
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip():
            after_blank = number == 0 or not lines[number - 1].strip()
            if not code and after_blank and indent >= 4 and not listed:
                written += ["::", ""]
                code = True
            elif code and indent < 4:
                code = False
            bullet = not code and line.lstrip().startswith(("- ", "* "))
            if bullet and not listed and not after_blank:
                written.append("")  # a list needs an empty line before it
            listed = bullet or (listed and indent > 0)
        written.append(line if code else re.sub(r"(?<!`)` ?([^`]+?) ?`(?![`_])", r"``\1``", line))
    lines[:] = written


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(FilesOutside)
    app.connect("autodoc-process-docstring", plain_text)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
