"""Pages of the knowledge room."""

from django.urls import path

from knowledge.views import adding, documents, search, sources

urlpatterns = [
    path("knowledge/", search.knowledge, name="knowledge"),
    path("knowledge/add/", adding.add, name="knowledge-add"),
    path("knowledge/sources/<int:number>/", sources.source, name="source"),
    path("knowledge/sources/<int:number>/edit/", sources.edit, name="source-edit"),
    path("knowledge/sources/<int:number>/files/", sources.add_files, name="source-files"),
    path("knowledge/sources/<int:number>/delete/", sources.delete, name="source-delete"),
    path("knowledge/sources/<int:number>/<slug:action>/", sources.act, name="source-act"),
    path("knowledge/documents/<int:number>/", documents.document, name="document"),
    path("knowledge/documents/<int:number>/delete/", documents.delete, name="document-delete"),
]
