import bz2
import gzip
import io
import os
import random
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from devflow.errors import DevFlowError, ErrorCode
from knowledge.indexing import archives
from knowledge.indexing.archives import MAX_FILES, is_archive, unpack
from tests.knowledge.loading.conftest import Configure

MB = 1024 * 1024
Files = list[tuple[str, bytes]]


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in files:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return packed.getvalue()


def tarred(files: Files) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def unpacked(name: str, data: bytes, *, max_bytes: int = MB) -> Files:
    return list(unpack(name, data, supported=lambda path: path.endswith((".md", ".py")), max_bytes=max_bytes))


def refusal(name: str, data: bytes, *, max_bytes: int = MB) -> DevFlowError:
    with pytest.raises(DevFlowError) as refused:
        unpack(name, data, supported=lambda path: path.endswith(".md"), max_bytes=max_bytes)  # before the first file
    assert "not unpacked" in refused.value.message
    return refused.value


KINDS = pytest.mark.parametrize(("name", "pack"), [("a.zip", zipped), ("a.tar.gz", tarred)])
Pack = Callable[[Files], bytes]


@KINDS
def test_the_supported_files_of_an_archive_are_given(name: str, pack: Pack) -> None:
    files = [
        ("docs/a.md", b"# A"),
        ("./b.md", b"b"),
        ("x.bin", b"\0"),
        ("docs/\u65e5\u672c.md", b"c"),
        ("empty.md", b""),
    ]
    assert unpacked(name, pack(files)) == [
        ("docs/a.md", b"# A"),
        ("b.md", b"b"),
        ("docs/\u65e5\u672c.md", b"c"),
        ("empty.md", b""),
    ]


@KINDS
def test_hidden_files_packages_and_second_files_of_a_name_are_left_out(name: str, pack: Pack) -> None:
    left_out = [".env.md", ".git/x.md", "node_modules/x.md", "__MACOSX/._a.md"]
    files = [(path, b"no") for path in left_out] + [("a.md", b"first"), ("a.md", b"second"), ("./a.md", b"third")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **kwargs: None)
        packed = pack(files)
    assert unpacked(name, packed) == [("a.md", b"first")]


@KINDS
def test_an_archive_of_nothing_gives_nothing(name: str, pack: Pack) -> None:
    assert unpacked(name, pack([])) == []


def test_archives_are_known_by_their_names() -> None:
    assert all(map(is_archive, ("a.zip", "A.ZIP", "a.tar.gz", "a.tgz")))
    assert not any(map(is_archive, ("a.docx", "a.gz", "zip", "a.zip.md", "")))


@KINDS
@pytest.mark.parametrize(
    "path", ["/etc/x.md", "../x.md", "a/../../x.md", "C:/x.md", "..\\x.md", "\\x.md", "x" * 600 + ".md"]
)
def test_paths_that_lead_out_refuse_the_archive(name: str, pack: Pack, path: str) -> None:
    assert refusal(name, pack([("fine.md", b"x"), (path, b"x")])).code is ErrorCode.INVALID_INPUT


@KINDS
def test_control_characters_in_names_are_replaced(name: str, pack: Pack) -> None:
    assert [path for path, _ in unpacked(name, pack([("a\n\x1bb\u202e.md", b"x")]))] == ["a\ufffd\ufffdb\ufffd.md"]


@KINDS
def test_one_file_over_the_limit_refuses_the_archive_by_name(name: str, pack: Pack) -> None:
    data = pack([("fine.md", b"x"), ("docs/large.md", os.urandom(MB) + b"x")])
    refused = refusal(name, data)
    assert refused.code is ErrorCode.TOO_LARGE and "docs/large.md" in refused.message
    assert refusal(name, pack([("a.md", b"12345")]), max_bytes=4).code is ErrorCode.TOO_LARGE


@KINDS
def test_the_limit_of_a_file_comes_from_the_configuration(name: str, pack: Pack, configure: Configure) -> None:
    configure(knowledge_max_document_mb=1)
    with pytest.raises(DevFlowError):
        unpack(name, pack([("a.md", os.urandom(MB + 1))]), supported=lambda path: True)


@KINDS
def test_too_many_files_refuse_the_archive(name: str, pack: Pack) -> None:
    assert len(unpacked(name, pack([(f"{n}.md", b"") for n in range(MAX_FILES)]))) == MAX_FILES
    refused = refusal(name, pack([(f"{n}.bin", b"") for n in range(MAX_FILES + 1)]))
    assert refused.code is ErrorCode.TOO_LARGE and "5,000 files" in refused.message


@KINDS
def test_a_bomb_is_refused_before_it_fills_the_memory(name: str, pack: Pack) -> None:
    data = pack([(f"{n}.md", b"\0" * 15 * MB) for n in range(20)])
    assert len(data) < MB
    tracemalloc.start()
    assert refusal(name, data, max_bytes=20 * MB).code is ErrorCode.TOO_LARGE
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * MB


def test_the_total_is_bounded_whatever_the_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_TOTAL", 100_000)
    files = [(f"{n}.md", os.urandom(30_000)) for n in range(4)]
    for name, pack in (("a.zip", zipped), ("a.tgz", tarred)):
        assert "more than" in refusal(name, pack(files)).message


def test_what_is_not_wanted_counts_in_a_tar_because_it_is_unpacked_on_the_way() -> None:
    assert refusal("a.tgz", tarred([("big.bin", b"\0" * 50 * MB), ("a.md", b"x")])).code is ErrorCode.TOO_LARGE
    assert unpacked("a.zip", zipped([("big.bin", b"\0" * 50 * MB), ("a.md", b"x")])) == [("a.md", b"x")]


def test_a_bomb_behind_the_end_of_a_tar_is_not_looked_at() -> None:
    data = gzip.decompress(tarred([("a.md", b"x")]))
    assert unpacked("a.tgz", gzip.compress(data + b"\0" * 50 * MB)) == [("a.md", b"x")]


# Zip


def test_an_overlapping_zip_bomb_is_refused() -> None:
    data = bytearray(zipped([(f"{n:04}.md", b"\0" * MB) for n in range(300)]))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        first = archive.infolist()[0].header_offset
    position = data.index(b"PK\x01\x02")
    while position >= 0:  # every entry points to the first one's data
        data[position + 42 : position + 46] = first.to_bytes(4, "little")
        position = data.find(b"PK\x01\x02", position + 4)
    assert refusal("a.zip", bytes(data), max_bytes=2 * MB).code is ErrorCode.TOO_LARGE


def test_a_zip_that_lies_about_a_size_is_broken() -> None:
    data = bytearray(zipped([("a.md", b"\0" * MB)]))
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (10).to_bytes(4, "little")
    with pytest.raises(DevFlowError) as refused:
        unpacked("a.zip", bytes(data))
    assert refused.value.code is ErrorCode.INVALID_INPUT


def test_a_zip_with_millions_of_entries_is_refused_before_they_are_read() -> None:
    entry = b"PK\x01\x02" + b"\0" * 42
    directory = entry * 200_000
    end = b"PK\x05\x06" + b"\0" * 8 + len(directory).to_bytes(4, "little") + b"\0" * 6
    data = directory + end
    tracemalloc.start()
    assert refusal("a.zip", data).code is ErrorCode.TOO_LARGE
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MB


def test_encrypted_and_oddly_compressed_zips_say_so() -> None:
    data = bytearray(zipped([("a.md", b"secret")]))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert "encrypted" in refusal("a.zip", bytes(data)).message
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert "deflate" in refusal("a.zip", zipped([("a.md", b"x" * 100)], method)).message


def test_links_and_directories_of_a_zip_are_left_out() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        link = zipfile.ZipInfo("link.md")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr(zipfile.ZipInfo("dir.md/"), "")
        regular = zipfile.ZipInfo("a.md")
        regular.external_attr = (stat.S_IFREG | 0o644) << 16
        archive.writestr(regular, "x")
    assert unpacked("a.zip", packed.getvalue()) == [("a.md", b"x")]


# Tar


def test_links_and_devices_of_a_tar_are_left_out() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for number, kind in enumerate(
            (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
        ):
            member = tarfile.TarInfo(f"{number}.md")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        member = tarfile.TarInfo("a.md")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    assert unpacked("a.tar.gz", packed.getvalue()) == [("a.md", b"x")]


def header(name: bytes, size: int, kind: bytes) -> bytes:
    member = tarfile.TarInfo(name.decode())
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_tar_whose_headers_are_a_bomb_is_refused(kind: bytes) -> None:
    data = gzip.compress(header(b"x", 150 * MB, kind) + os.urandom(1000) + b"\0" * 150 * MB)
    data += os.urandom(2 * MB)  # so that the ratio alone does not refuse it
    tracemalloc.start()
    assert "headers" in refusal("a.tgz", data).message
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * MB


def test_sparse_files_are_refused() -> None:
    pax = b"".join(
        f"{len(line) + 3 + (len(line) + 3 > 9)} {line}\n".encode()
        for line in ("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=a.md", "GNU.sparse.realsize=9")
    )
    data = header(b"p", len(pax), tarfile.XHDTYPE) + pax.ljust(512, b"\0") + header(b"a.md", 150 * MB, b"0")
    packed = gzip.compress(data + b"99999999\n" + b"1\n" * 20 * MB) + os.urandom(2 * MB)
    tracemalloc.start()
    assert "headers" in refusal("a.tgz", packed, max_bytes=200 * MB).message
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * MB


def test_a_tar_cut_short_or_a_size_that_is_none_is_refused() -> None:
    data = gzip.decompress(tarred([("a.md", os.urandom(5000))]))
    for broken in (data[:3000], header(b"a.md", 10**15, b"0") + b"x" * 512):
        refusal("a.tgz", gzip.compress(broken))
    refusal("a.tgz", tarred([("a.md", os.urandom(5000))])[:-3000])


# Broken ones of any kind


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tgz"])
@pytest.mark.parametrize(
    "data", [b"", b"x", b"PK\x03\x04", b"\x1f\x8b", random.Random(1).randbytes(1000), bz2.compress(b"x")]
)
def test_what_is_no_archive_is_refused(name: str, data: bytes) -> None:
    assert refusal(name, data).code is ErrorCode.INVALID_INPUT


@KINDS
def test_damaged_archives_never_fail_in_an_unknown_way(name: str, pack: Pack) -> None:
    chance = random.Random(1)
    whole = pack([(f"docs/{n}.md", os.urandom(50) * 20) for n in range(20)])
    if name != "a.zip":
        whole = gzip.decompress(whole)
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        damaged = bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        try:
            unpacked(name, damaged if name == "a.zip" else gzip.compress(damaged, 0))
        except DevFlowError as exc:
            assert exc.code in (ErrorCode.INVALID_INPUT, ErrorCode.TOO_LARGE)
