"""Pages of the workflow."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from workflow.views import accounts, board, pages, stream

urlpatterns = [
    path("", pages.home, name="home"),
    path("login/", accounts.Login.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("board/", board.first, name="boards"),
    path("board/<slug:slug>/", board.board, name="board"),
    path("board/<slug:slug>/events", stream.events, name="board-events"),
    path("tasks/<int:number>/", pages.task, name="task"),
    path("tasks/<int:number>/<slug:action>", pages.act, name="task-act"),
    path("agents/", pages.agents_page, name="agents"),
    path("activity/", pages.activity_page, name="activity"),
]
