"""Small documents of the formats that are not text, built here so that no binary file is kept, and a token counter."""

import io
import re
import zipfile
from collections.abc import Sequence

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
_TYPES = """<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/></Types>"""


def count_tokens(text: str) -> int:
    """About what a word-piece tokenizer counts, with its two marks round every text."""
    return 2 + len(re.findall(r"\w{1,6}|[^\w\s]", text))


def pdf(pages: Sequence[Sequence[str]], *, title: str = "", outline: Sequence[tuple[str, int]] = ()) -> bytes:
    """A PDF whose pages show the given lines."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for lines in pages:
        page = writer.add_blank_page(width=595, height=842)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        stream = DecodedStreamObject()
        shown = " ".join(f"({line}) Tj T*" for line in lines)
        stream.set_data(f"BT /F1 12 Tf 14 TL 50 800 Td {shown} ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    for name, number in outline:
        writer.add_outline_item(title=name, page_number=number)
    if title:
        writer.add_metadata({"/Title": title})
    return written(writer)


def written(writer: object) -> bytes:
    buffer = io.BytesIO()
    writer.write(buffer)  # type: ignore[attr-defined]  # a PdfWriter
    return buffer.getvalue()


def docx(body: str, *, doctype: str = "", extra: dict[str, bytes] | None = None) -> bytes:
    """A Word document with the given WordprocessingML in its body."""
    document = f'<?xml version="1.0"?>{doctype}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    relations = (
        f'<?xml version="1.0"?><Relationships xmlns="{_RELATIONS}">'
        f'<Relationship Id="r1" Type="{_DOCUMENT}" Target="word/document.xml"/></Relationships>'
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr("_rels/.rels", relations)
        archive.writestr("word/document.xml", document)
        for name, content in (extra or {}).items():
            archive.writestr(name, content)
    return buffer.getvalue()


def word_paragraph(text: str, *, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"
