"""What lists can be narrowed by."""

import django_filters
from django.db.models import Q, QuerySet

from knowledge.api.fields import OfDocument, OfSource
from knowledge.models import Chunk, CodeExample, Document, Source
from knowledge.selectors import words
from knowledge.services.examples import canonical


class ProjectRows(django_filters.FilterSet):
    project = django_filters.CharFilter(field_name="project__slug", label="Project (slug)")


class SourceRows(ProjectRows):
    type = django_filters.ChoiceFilter(choices=Source.Type.choices, label="Type")
    status = django_filters.ChoiceFilter(choices=Source.Status.choices, label="Status")
    tag = django_filters.CharFilter(field_name="tags", lookup_expr="has", label="Tag")
    q = django_filters.CharFilter(method="by_words", label="In title, description or address")

    class Meta:
        model = Source
        fields = ()

    def by_words(self, rows: QuerySet[Source], name: str, value: str) -> QuerySet[Source]:
        return rows.filter(Q(title__icontains=value) | Q(description__icontains=value) | Q(url__icontains=value))


class DocumentRows(ProjectRows):
    source = OfSource(field_name="source", label="Source")
    status = django_filters.ChoiceFilter(choices=Document.Status.choices, label="Status")
    q = django_filters.CharFilter(method="by_words", label="In path or title")

    class Meta:
        model = Document
        fields = ()

    def by_words(self, rows: QuerySet[Document], name: str, value: str) -> QuerySet[Document]:
        return rows.filter(Q(path__icontains=value) | Q(title__icontains=value))


class ChunkRows(ProjectRows):
    source = OfSource(field_name="source", label="Source")
    document = OfDocument(field_name="document", label="Document")
    has_code = django_filters.BooleanFilter(label="Has code")
    q = django_filters.CharFilter(method="by_words", label="Words: the 200 best, best first")

    class Meta:
        model = Chunk
        fields = ()

    def by_words(self, rows: QuerySet[Chunk], name: str, value: str) -> QuerySet[Chunk]:
        return words.best_chunks(rows, value)


class CodeExampleRows(ProjectRows):
    source = OfSource(field_name="source", label="Source")
    document = OfDocument(field_name="document", label="Document")
    language = django_filters.CharFilter(method="by_language", label="Language, such as python or shell")
    q = django_filters.CharFilter(method="by_words", label="Words of the passages they stand in")

    class Meta:
        model = CodeExample
        fields = ()

    def by_language(self, rows: QuerySet[CodeExample], name: str, value: str) -> QuerySet[CodeExample]:
        return rows.filter(language=canonical(value))

    def by_words(self, rows: QuerySet[CodeExample], name: str, value: str) -> QuerySet[CodeExample]:
        return words.examples_near(rows, value)
