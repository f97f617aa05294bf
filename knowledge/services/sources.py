"""Sources: made, changed, paused, read again, deleted. Reading itself is `ingestion`."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from devflow.actors import Actor
from devflow.errors import conflict, invalid
from devflow.events import LiveEvent, bus
from devflow.vectors import index
from knowledge.indexing import fetching, uploads, walking
from knowledge.models import Chunk, Document, Source
from knowledge.selectors.sources import KIND
from knowledge.services import documents

MAX_TAGS, MAX_TAG = 50, 64
CHANGEABLE = frozenset({"title", "description", "tags", "priority", "options"})
_WEB_OPTIONS: Mapping[str, type] = {
    "max_depth": int,
    "max_pages": int,
    "same_path": bool,
    "include": list,
    "exclude": list,
}


def told(source: Source, kind: str) -> None:
    """Tell pages and clients that a source changed."""
    bus.publish(LiveEvent(kind, source.project_id, source.public_id, uris=(f"devflow://source/{source.public_id}",)))


def create(
    *,
    project_id: int,
    actor: Actor,
    title: str,
    type: str,  # the field's name in the contract
    path: str = "",
    url: str = "",
    content: str = "",
    files: Iterable[tuple[str, Iterable[bytes]]] = (),
    description: str = "",
    tags: Iterable[str] = (),
    priority: int = 5,
    options: Mapping[str, Any] | None = None,
) -> Source:
    """Add a source and have it read. Raises `invalid_input`, `forbidden` (outside the allowed roots), `too_large`.

    upload: `files` as (name, pieces of bytes), or `content` named by `path`; manual: `content`; directory and git:
    `path`; web: `url`.
    """
    place = checked_place(type, path=path, url=url, content=content, has_files=bool(files))
    wanted = checked_options(type, options or {})
    kept_tags = checked_tags(tags)
    _check_label(Source(title=title, description=description, priority=priority))
    if content:
        name = uploads.safe_name(path) if type == Source.Type.UPLOAD and path else "text.md"
        files = [(name, [content.encode()])]
    with _received(files) as received, transaction.atomic():
        source = Source.objects.create(
            project_id=project_id,
            title=title,
            description=description,
            type=type,
            url=place,
            tags=kept_tags,
            priority=priority,
            options=wanted,
            created_by=actor.name,
        )
        _adopt(source, received)
        told(source, "source.created")
        _wake()
    return source


def checked_tags(tags: Iterable[str]) -> list[str]:
    """Tags, each once. Raises `invalid_input`."""
    kept = list(dict.fromkeys(tags))
    if len(kept) > MAX_TAGS or not all(
        0 < len(tag) <= MAX_TAG and "," not in tag and "\x00" not in tag for tag in kept
    ):
        raise invalid(
            f"A source has at most {MAX_TAGS} tags of 1 to {MAX_TAG} characters without commas.",
            tags=f"at most {MAX_TAGS}, each 1 to {MAX_TAG} characters",
        )
    return kept


def _check_label(source: Source) -> None:
    """Raises `invalid_input` naming what no source can be called, or weigh."""
    try:
        source.clean_fields(
            exclude={field.name for field in Source._meta.fields} - {"title", "description", "priority"}
        )
    except ValidationError as exc:
        faults = {name: " ".join(messages) for name, messages in exc.message_dict.items()}
        raise invalid(" ".join(f"{name}: {said}" for name, said in faults.items()), **faults) from None


def checked_place(kind: str, *, path: str, url: str, content: str, has_files: bool = False) -> str:
    """Where a source of this type is read from. Raises `invalid_input` for what does not go together, `forbidden`."""
    given = {name for name, value in (("path", path), ("url", url), ("content", content)) if value}
    if kind == Source.Type.WEB:
        _only(kind, given, {"url"})
        return fetching.check_url(url)
    if kind in (Source.Type.DIRECTORY, Source.Type.GIT):
        _only(kind, given, {"path"})
        root = walking.resolve_root(path)
        if kind == Source.Type.GIT and not walking.git_head(root):
            raise invalid("That directory is no git checkout; use type `directory`.", path="a git checkout")
        return str(root)
    if kind == Source.Type.MANUAL:
        _only(kind, given, {"content"})
        return ""
    if not has_files:
        _only(kind, given - {"path"}, {"content"})
    return ""


def _only(kind: str, given: set[str], wanted: set[str]) -> None:
    if given != wanted:
        name = next(iter(wanted))
        raise invalid(
            f"A source of type {kind} takes {name}" + (f", not {', '.join(sorted(given - wanted))}." if given else "."),
            **{name: "is required"},
        )


def checked_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a crawl. Raises `invalid_input` naming a wrong one."""
    if options and kind != Source.Type.WEB:
        raise invalid("Only sources of type web take options.", options="leave it out")
    for name, value in options.items():
        wanted = _WEB_OPTIONS.get(name)
        if wanted is None:
            raise invalid(f"There is no option {name[:50]}.", **{name[:50]: f"one of {', '.join(_WEB_OPTIONS)}"})
        if type(value) is not wanted or not _is_sensible(value):
            raise invalid(f"{name} must be {_WANTED[wanted]}.", **{name: _WANTED[wanted]})
    return dict(options)


_WANTED = {int: "a whole number from 0 to 10,000", bool: "true or false", list: "a list of at most 50 patterns"}


def _is_sensible(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= 50 and all(isinstance(one, str) and 0 < len(one) <= 200 for one in value)
    return not isinstance(value, int) or 0 <= value <= 10_000


@contextmanager
def _received(files: Iterable[tuple[str, Iterable[bytes]]]) -> Iterator[list[uploads.Received]]:
    """The files on disk, written before the transaction that takes them: it would hold every other writer up."""
    received: list[uploads.Received] = []
    try:
        for name, pieces in files:
            received.append(uploads.receive(name, pieces))  # what came before a refusal is dropped
        yield received
    finally:
        for one in received:
            one.drop()


def _adopt(source: Source, received: Iterable[uploads.Received]) -> None:
    kept = [one.adopt(source.pk) for one in received]
    if kept:
        known = {one["name"]: one for one in source.metadata.get("files", [])}
        known |= {one.name: {"name": one.name, "sha256": one.sha256, "size": one.size} for one in kept}
        source.metadata = {**source.metadata, "files": list(known.values())}
        source.save(update_fields=["metadata"])


def add_files(*, source: Source, files: Iterable[tuple[str, Iterable[bytes]]], actor: Actor) -> Source:
    """Add files to an upload, or replace those of the same name. Raises `invalid_input`, `too_large`."""
    if source.type != Source.Type.UPLOAD:
        raise invalid("Only uploads take files.", type="upload")
    with _received(files) as received, transaction.atomic():
        source = Source.objects.select_for_update().get(pk=source.pk)
        _adopt(source, received)
        return request_run(source=source, actor=actor)


def rewrite(*, source: Source, content: str, actor: Actor) -> Source:
    """Replace the text of a manual source."""
    if source.type != Source.Type.MANUAL:
        raise invalid("Only a manual source has a text of its own.", type="manual")
    with _received([("text.md", [content.encode()])]) as received, transaction.atomic():
        _adopt(source, received)
        return request_run(source=source, actor=actor)


@transaction.atomic
def configure(*, source: Source, actor: Actor, **changes: Any) -> Source:
    """Change title, description, tags, priority or options."""
    if unknown := changes.keys() - CHANGEABLE:
        raise invalid(f"{', '.join(sorted(unknown))} cannot be changed.", **dict.fromkeys(unknown, "cannot be changed"))
    if "options" in changes:
        changes["options"] = checked_options(source.type, changes["options"])
    if "tags" in changes:
        changes["tags"] = checked_tags(changes["tags"])
    for name, value in changes.items():
        setattr(source, name, value)
    _check_label(source)
    source.save(update_fields=[*changes, "updated_at"])
    _revise(source)
    told(source, "source.updated")
    return source


@transaction.atomic
def request_run(*, source: Source, actor: Actor, force: bool = False) -> Source:
    """Read the source again; with `force` also parse and chunk what did not change. One that is being read restarts."""
    Source.objects.filter(pk=source.pk).update(
        status=Source.Status.PENDING,
        error="",
        run=F("run") + 1,
        run_wanted=True,
        run_force=force,
        run_done=0,
        run_total=0,
        run_beat=None,
        updated_at=timezone.now(),
    )
    source.refresh_from_db()
    told(source, "source.updated")
    _wake()
    return source


@transaction.atomic
def pause(*, source: Source, actor: Actor) -> Source:
    """Stop reading it; what is indexed stays and is found. Raises `conflict` when it is paused already."""
    if (
        not Source.objects.filter(pk=source.pk)
        .exclude(status=Source.Status.PAUSED)
        .update(status=Source.Status.PAUSED, run_beat=None, updated_at=timezone.now())
    ):
        raise conflict("The source is paused already.", suggestion="Resume it to have it read again.")
    source.refresh_from_db()
    told(source, "source.updated")
    return source


@transaction.atomic
def resume(*, source: Source, actor: Actor) -> Source:
    """Go on reading where it was paused. Raises `conflict` when it is not paused."""
    if not Source.objects.filter(pk=source.pk, status=Source.Status.PAUSED).update(
        status=Source.Status.PENDING, run_wanted=True, run_beat=None, updated_at=timezone.now()
    ):
        raise conflict("The source is not paused.")
    source.refresh_from_db()
    told(source, "source.updated")
    _wake()
    return source


@transaction.atomic
def retry_failed(*, source: Source, actor: Actor) -> Source:
    """Read the documents again that could not be read (the others are looked at and skipped)."""
    Document.objects.filter(source=source, status=Document.Status.ERROR).update(raw_hash="", etag="", modified="")
    return request_run(source=source, actor=actor)


@transaction.atomic
def retry_document(*, document: Document, actor: Actor) -> Source:
    """Read a document again that could not be read, and look at the others of its source. Raises `conflict`."""
    if document.status != Document.Status.ERROR:
        raise conflict("This document was read.", suggestion="Reindex its source to have all of it read again.")
    return request_run(source=document.source, actor=actor)


@transaction.atomic
def delete(*, source: Source, actor: Actor) -> None:
    """Delete the source with everything it gave: rows, vectors, files."""
    locked = documents.lock_any(source.pk)
    if locked is None:
        return
    points = list(Chunk.objects.filter(source=source).values_list("point", flat=True))
    told(source, "source.deleted")
    number = source.pk
    locked.delete()
    index.touch(KIND, points)
    transaction.on_commit(lambda: uploads.discard(number))


@transaction.atomic
def delete_document(*, document: Document, actor: Actor) -> None:
    """Delete one document. Of an upload the file goes too; elsewhere it comes back when the source is read again."""
    source = documents.lock_any(document.source_id)
    if source is None:
        return
    documents.remove(source_id=source.pk, documents=[document])
    files = source.metadata.get("files", [])
    left = [one for one in files if one["name"] != document.path]
    if len(left) != len(files):
        source.metadata = {**source.metadata, "files": left}
        source.save(update_fields=["metadata"])
    told(source, "source.updated")


def _revise(source: Source) -> None:
    Source.objects.filter(pk=source.pk).update(revision=F("revision") + 1)


def _wake() -> None:
    from knowledge.jobs import ingest

    ingest.wake()
