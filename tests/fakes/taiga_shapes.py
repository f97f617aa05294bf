"""The objects of the loopback Taiga as they go over the wire: every key of the recorded answers, and no others."""

from typing import Any

Json = dict[str, Any]

GRAVATAR = "0" * 32
PERMISSIONS = [
    *("add_issue", "modify_issue", "delete_issue", "view_issues", "add_milestone", "modify_milestone"),
    *("delete_milestone", "view_milestones", "view_project", "add_task", "modify_task", "delete_task", "view_tasks"),
    *("add_us", "modify_us", "delete_us", "view_us", "view_epics", "add_epic", "modify_epic", "delete_epic"),
]
FIELDS = {
    "epics": ("subject", "description", "color", "tags", "status", "assigned_to", "is_blocked", "blocked_note"),
    "userstories": (
        *("subject", "description", "tags", "status", "assigned_to", "points", "milestone", "due_date"),
        *("is_blocked", "blocked_note"),
    ),
    "tasks": (
        *("subject", "description", "tags", "status", "assigned_to", "user_story", "milestone", "due_date"),
        *("is_blocked", "blocked_note"),
    ),
    "issues": (
        *("subject", "description", "tags", "status", "assigned_to", "type", "severity", "priority", "milestone"),
        *("is_blocked", "blocked_note", "due_date"),
    ),
}


def user(row: Json) -> Json:
    """What a login and /users/me tell of oneself."""
    return {
        "id": row["id"],
        "username": row["username"],
        "full_name": row["full_name"],
        "full_name_display": row["full_name"],
        "color": "",
        "bio": "",
        "lang": "",
        "theme": "",
        "timezone": "",
        "is_active": True,
        "photo": None,
        "big_photo": None,
        "gravatar_id": GRAVATAR,
        "roles": [],
        "total_private_projects": 1,
        "total_public_projects": 0,
        "email": row["email"],
        "uuid": "f" * 32,
        "date_joined": "2013-04-01T13:48:21.711Z",
        "read_new_terms": False,
        "accepted_terms": True,
        **dict.fromkeys(("max_private_projects", "max_public_projects")),
        **dict.fromkeys(("max_memberships_private_projects", "max_memberships_public_projects")),
        "verified_email": True,
    }


def person(row: Json | None) -> Json | None:
    if row is None:
        return None
    return {
        "username": row["username"],
        "full_name_display": row["full_name"],
        "photo": None,
        "big_photo": None,
        "gravatar_id": GRAVATAR,
        "is_active": True,
        "id": row["id"],
    }


def project_line(row: Json) -> Json:
    """A project as the list of projects has it."""
    return {
        **{name: row[name] for name in ("id", "name", "slug", "description", "created_date", "modified_date")},
        "owner": person(row["owner"]),
        "members": [one["user"]["id"] for one in row["people"]],
        **dict.fromkeys(("total_milestones", "total_story_points")),
        "is_contact_activated": True,
        "is_epics_activated": False,
        "is_backlog_activated": True,
        "is_kanban_activated": False,
        "is_wiki_activated": True,
        "is_issues_activated": True,
        **dict.fromkeys(("videoconferences", "videoconferences_extra_data")),
        "creation_template": 1,
        "is_private": row["is_private"],
        "anon_permissions": [],
        "public_permissions": [],
        "is_featured": False,
        "is_looking_for_people": False,
        "looking_for_people_note": "",
        **dict.fromkeys(("blocked_code", "archived_code")),
        "totals_updated_datetime": row["modified_date"],
        **{f"total_{what}{when}": 0 for what in ("fans", "activity") for when in ("", *_WHEN)},
        "tags": [],
        "tags_colors": {},
        **{name: row[name] for name in _DEFAULTS},
        "default_swimlane": None,
        "my_permissions": PERMISSIONS,
        "i_am_owner": True,
        "i_am_admin": True,
        "i_am_member": True,
        "notify_level": 1 if row["people"] else None,
        "total_closed_milestones": 0,
        "is_watcher": True,
        "total_watchers": 1,
        "logo_small_url": None,
        "logo_big_url": None,
        "is_fan": False,
        "my_homepage": False,
    }


_WHEN = ("_last_week", "_last_month", "_last_year")
_DEFAULTS = (
    *("default_epic_status", "default_points", "default_us_status", "default_task_status", "default_priority"),
    *("default_severity", "default_issue_status", "default_issue_type"),
)


def project(row: Json, tables: dict[str, list[Json]]) -> Json:
    """A project by itself: with everything its fields may point to."""

    def own(name: str) -> list[Json]:
        return [{**{k: v for k, v in one.items() if k != "project"}, "project_id": row["id"]} for one in tables[name]]

    duedates = [
        {"id": at, "name": name, "order": at, "by_default": at == 1, "color": "#9dce0a", "days_to_due": days}
        | {"project_id": row["id"]}
        for at, (name, days) in enumerate((("Default", None), ("Due soon", 14), ("Past due", 0)), 1)
    ]
    return {
        **project_line(row),
        "members": [_project_member(one) for one in row["people"]],
        "epic_statuses": own("epic-statuses"),
        "swimlanes": None,
        "us_statuses": own("userstory-statuses"),
        "us_duedates": duedates,
        "points": own("points"),
        "task_statuses": own("task-statuses"),
        "task_duedates": duedates,
        "issue_statuses": own("issue-statuses"),
        "issue_types": own("issue-types"),
        "issue_duedates": duedates,
        "priorities": own("priorities"),
        "severities": own("severities"),
        **dict.fromkeys(f"{kind}_custom_attributes" for kind in ("epic", "userstory", "task", "issue")),
        "roles": [{k: v for k, v in role.items() if k != "members_count"} for role in own("roles")],
        "total_memberships": len(row["people"]),
        "is_out_of_owner_limits": False,
        "is_private_extra_info": {"can_be_updated": True, "reason": None},
        "max_memberships": None,
        **dict.fromkeys(f"{kind}_csv_uuid" for kind in ("epics", "userstories", "tasks", "issues")),
        "transfer_token": None,
        "milestones": [],
    }


def _project_member(one: Json) -> Json:
    return {
        "role": one["role"]["id"],
        "role_name": one["role"]["name"],
        "full_name": one["user"]["full_name"],
        "full_name_display": one["user"]["full_name"],
        "is_active": True,
        "id": one["user"]["id"],
        "color": "",
        "username": one["user"]["username"],
        "photo": None,
        "gravatar_id": GRAVATAR,
    }


def membership(row: Json, project: Json) -> Json:
    """A member, or somebody invited who has no account yet."""
    found = row["user"]
    return {
        "id": row["id"],
        "user": found and found["id"],
        "project": project["id"],
        "role": row["role"]["id"],
        "is_admin": row["is_admin"],
        "created_at": project["created_date"],
        "invited_by": None if found else person(project["owner"]),
        "invitation_extra_text": None,
        "user_order": 1,
        "role_name": row["role"]["name"],
        "full_name": found and found["full_name"],
        "is_user_active": found is not None,
        "color": "" if found else None,
        "photo": None,
        "gravatar_id": found and GRAVATAR,
        "project_name": project["name"],
        "project_slug": project["slug"],
        "is_owner": (found["id"] == project["owner"]["id"]) if found else None,
        "email": row["email"],
        "user_email": found and found["email"],
    }


def milestone(row: Json, project: Json) -> Json:
    return {
        **_in_project(project),
        **{name: row[name] for name in ("id", "name", "slug")},
        "owner": project["owner"]["id"],
        **{name: row[name] for name in ("estimated_start", "estimated_finish", "created_date", "modified_date")},
        "closed": row["closed"],
        "disponibility": 0.0,
        "order": 1,
        "user_stories": [],
        "total_points": None,
        "closed_points": None,
    }


def _in_project(project: Json) -> Json:
    extra = {"name": project["name"], "slug": project["slug"], "logo_small_url": None, "id": project["id"]}
    return {"project": project["id"], "project_extra_info": extra}


def common(row: Json, project: Json, status: Json, assigned: Json | None, owner: Json) -> Json:
    """What the four kinds of item have in common."""
    said = {"name": status["name"], "color": status["color"], "is_closed": status["is_closed"]}
    return {
        "tags": [[tag, None] for tag in row["tags"]],
        "attachments": [],
        **_in_project(project),
        "status": status["id"],
        "status_extra_info": said,
        "assigned_to": assigned and assigned["id"],
        "assigned_to_extra_info": person(assigned),
        "owner": owner["id"],
        "owner_extra_info": person(owner),
        "is_watcher": bool(row["watchers"]),
        "total_watchers": len(row["watchers"]),
        "is_voter": False,
        "total_voters": 0,
        "id": row["id"],
        "ref": row["ref"],
        "created_date": row["created_date"],
        "modified_date": row["modified_date"],
        "subject": row["subject"],
        "version": row["version"],
        "watchers": list(row["watchers"]),
        "is_blocked": row["is_blocked"],
        "blocked_note": row["blocked_note"],
    }


def due(row: Json) -> Json:
    day = row["due_date"]
    return {"due_date": day, "due_date_reason": "", "due_date_status": "past_due" if day else "not_set"}


def whole(row: Json) -> Json:
    """What only an item by itself has."""
    return {
        "comment": "",
        "blocked_note_html": _html(row["blocked_note"]),
        "description": row["description"],
        "description_html": _html(row["description"]),
    }


def _html(text: str) -> str:
    return f"<p>{text}</p>" if text else ""


def history(entry: Json, row: Json, author: Json, key: str) -> Json:
    who = {"pk": author["id"], "username": author["username"], "name": author["full_name"], "photo": None}
    return {
        "id": entry["id"],
        "user": {**who, "is_active": True, "gravatar_id": GRAVATAR},
        "created_at": entry["at"],
        "type": 1,
        "key": f"{key}:{row['id']}",
        "diff": entry["diff"],
        "snapshot": None,
        "values": {"users": {}, **entry["values"]},
        "values_diff": entry["diff"],
        "comment": entry["comment"],
        "comment_html": _html(entry["comment"]),
        "delete_comment_date": None,
        "delete_comment_user": None,
        "edit_comment_date": None,
        "is_hidden": False,
        "is_snapshot": False,
    }
