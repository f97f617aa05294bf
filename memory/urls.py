"""Pages of the memories."""

from django.urls import path

from memory import views

urlpatterns = [
    path("memories/", views.shelf, name="memories"),
    path("memories/merge/", views.merge, name="memories-merge"),
    path("memories/<int:number>/", views.memory, name="memory"),
    path("memories/<int:number>/<slug:action>", views.act, name="memory-act"),
]
