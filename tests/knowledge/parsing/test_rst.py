"""reStructuredText of Sphinx, Python and Django reads as Markdown; nothing in it is ever an error message."""

from pathlib import Path

import pytest

from knowledge.indexing.parsed import parse


def markdown(text: str, name: str = "a.rst") -> str:
    return parse(text.encode(), name=name).text


def test_titles_text_roles_and_literals() -> None:
    text = """
=======
Modules
=======

:mod:`json` has :func:`~json.loads` and :meth:`JSONDecoder.decode`, see :ref:`the guide <guide>`, :doc:`/topics/db`,
:pep:`8`, :class:`!Hidden`, :term:`generator`, ``a | b``, *emphasis*, :unknown:`some thing` and :kbd:`Ctrl`.

Second -- part
--------------

Text with `link <https://example.com>`_ and |name|.

.. |name| replace:: a substitution
"""
    parsed = parse(text.encode(), name="a.txt")
    assert parsed.title == "Modules"
    assert "`json` has `loads()` and `JSONDecoder.decode()`, see the guide, /topics/db," in parsed.text
    assert "PEP 8, `Hidden`, generator, `a | b`, *emphasis*, `some thing` and `Ctrl`." in parsed.text
    assert "## Second — part\n\nText with link and a substitution." in parsed.text


def test_descriptions_are_headings_with_their_whole_names() -> None:
    text = """
json
====

.. module:: json

.. function:: loads(s, *, cls=None)
              load(fp)

   Deserialize *s*.

.. class:: JSONDecoder(*, strict=True)

   Decodes.

   .. method:: decode(s)

      Return the object.

   .. versionadded:: 3.1
      It has a body.

Text after.
"""
    expected = """# json

## `json.loads`

`json.loads(s, *, cls=None)`
`json.load(fp)`

Deserialize *s*.

## `json.JSONDecoder`

`class json.JSONDecoder(*, strict=True)`

Decodes.

### `JSONDecoder.decode`

`JSONDecoder.decode(s)`

Return the object.

## `json.JSONDecoder` (continued)

**Added in version 3.1:** It has a body.

# json (continued)

Text after."""
    assert markdown(text) == expected


def test_code_has_its_language_and_caption() -> None:
    text = """
Code
====

Python by its looks::

    def view(request):
        return HttpResponse("hi")

.. code-block:: html+django
   :caption: ``templates/index.html``

   {% for a in b %}{% endfor %}

.. console::

   $ python manage.py runserver

>>> 1 + 1
2

.. testcode::
   :hide:

   secret()

.. highlight:: c

::

   int main(void);

.. literalinclude:: ../includes/a.py
"""
    found = markdown(text)
    assert '```python\ndef view(request):\n    return HttpResponse("hi")\n```' in found
    assert "`templates/index.html`:\n\n```html+django\n{% for a in b %}{% endfor %}\n```" in found
    assert "```bash\n$ python manage.py runserver\n```" in found
    assert "```pycon\n>>> 1 + 1\n2\n```" in found
    assert "```c\nint main(void);\n```" in found
    assert "See the file `../includes/a.py`." in found
    assert "secret" not in found


def test_notes_lists_definitions_and_tables() -> None:
    text = """
Things
======

.. note:: Mind this.

   And that.

.. deprecated-removed:: 3.11 3.13 Use another.

1. one
2. two

   .. code-block:: python

      a = 1

term : str
    What it means.

=======  =======
Name     Meaning
=======  =======
``a|b``  first
c        second
=======  =======

.. list-table::
   :header-rows: 1

   * - H1
     - H2
   * - x
     - y

-v, --verbose   says more
"""
    found = markdown(text)
    assert "**Note:** Mind this.\n\nAnd that." in found
    assert "**Deprecated since version 3.11, removed in version 3.13:** Use another." in found
    assert "1. one\n\n2. two\n\n   ```python\n   a = 1\n   ```" in found
    assert "- **term : str**: What it means." in found
    assert "| Name | Meaning |\n| --- | --- |\n| `a\\|b` | first |\n| c | second |" in found
    assert "| H1 | H2 |\n| --- | --- |\n| x | y |" in found
    assert "- `-v, --verbose`: says more" in found


def test_a_glossary_gives_its_terms_headings() -> None:
    text = "Glossary\n========\n\n.. glossary::\n\n   GIL\n      The lock.\n\n   ``>>>``\n      The prompt.\n"
    assert markdown(text) == "# Glossary\n\n## GIL\n\nThe lock.\n\n## `>>>`\n\nThe prompt."


def test_text_that_markdown_would_read_otherwise_is_escaped() -> None:
    assert (
        markdown("A\n=\n\nyear\n# 1 of\n- 2 and\n1999. It was.\n")
        == "# A\n\nyear\n\\# 1 of\n\\- 2 and\n1999\\. It was."
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".. frobnicate:: What it says\n\n   In it.\n", "What it says\n\nIn it."),
        (".. frobnicate::\n   :option: 1\n\n   In it.\n", "In it."),
        (".. setting:: DEBUG\n\nText.\n", "Text."),
        (".. raw:: html\n\n   <script>alert(1)</script>\n\nText.\n", "Text."),
        (".. index:: a\n.. only:: html\n\n   Kept.\n", "Kept."),
        (".. csv-table::\n   :file: /etc/passwd\n\nText.\n", "Text."),
        (".. include:: /etc/passwd\n\nText.\n", "Text."),
        (".. role:: custom(raw)\n   :format: html\n\n:custom:`x y`\n", "`x y`"),
        ("Unfinished *emphasis and `role\n\n.. x::\n", "Unfinished *emphasis and `role"),
        (".. image:: a.png\n   :alt: A cat\n\n:any:`x`\n", "\\[Image: A cat]\n\nx"),
    ],
)
def test_directives_never_fail_and_never_reach_out(text: str, expected: str) -> None:
    found = markdown(text)
    assert "root:" not in found and "script" not in found and "directive" not in found
    assert found.replace("```\n.. csv-table::\n   :file: /etc/passwd\n```\n\n", "") == expected.replace("\\[", "[")


def test_documents_do_not_change_how_the_next_one_is_read() -> None:
    markdown(".. default-role:: math\n\n.. role:: func\n\n:func:`a` `b`\n")
    assert markdown(":func:`a` and `b`\n") == "`a()` and `b`"


def test_plain_text_is_not_taken_for_restructuredtext() -> None:
    text = "Shopping::\n\n  * eggs\n  ** more *eggs\n"
    assert markdown(text, "list.txt") == text


def test_a_document_too_hard_for_docutils_is_kept_as_text() -> None:
    nested = "".join(" " * depth + "a\n\n" for depth in range(900))
    assert markdown(nested + ".. note:: x\n").count("a") >= 900


PYTHON_DOCS = Path("/usr/share/doc/python3.11/html/_sources")


@pytest.mark.skipif(not PYTHON_DOCS.is_dir(), reason="the documentation of Python is not installed")
@pytest.mark.parametrize(
    "name", ["library/json", "library/stdtypes", "c-api/dict", "glossary", "reference/expressions"]
)
def test_the_documentation_of_python_leaves_no_markup(name: str) -> None:
    parsed = parse((PYTHON_DOCS / f"{name}.rst.txt").read_bytes(), name=f"{name}.rst.txt")
    outside = "".join(parsed.text.split("```")[::2])
    assert ".. " not in outside.replace("... ", "") and ":func:" not in outside and "System Message" not in outside
