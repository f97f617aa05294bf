"""What is known of the tools of well-known servers, whose annotations say less than their documentation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Preset:
    """Overrides of one action; `lookup` and `references` as in the `Action` row."""

    intent: str
    effect: str
    lookup: dict[str, Any] | None = None
    references: dict[str, Any] | None = None


def _reads(*names: str, intent: str = "QUERY") -> dict[str, Preset]:
    return dict.fromkeys(names, Preset(intent, "READ_ONLY"))


def _changes(*names: str) -> dict[str, Preset]:
    return dict.fromkeys(names, Preset("MODIFY", "MUTATING"))


_SYMBOL = {"name_path": "{name_path}", "relative_path": "{relative_path}"}
_ON_A_SYMBOL = Preset(
    "MODIFY",
    "MUTATING",
    lookup={"action": "find_symbol", "params": _SYMBOL},
    references={"action": "find_referencing_symbols", "params": _SYMBOL},
)

SERENA: Mapping[str, Preset] = {
    **_reads(
        *("find_symbol", "find_referencing_symbols", "get_symbols_overview", "search_for_pattern", "find_file"),
        *("list_dir", "read_file", "read_memory", "list_memories", "get_current_config", "initial_instructions"),
    ),
    **_reads("check_onboarding_performed", "onboarding", "summarize_changes", intent="ANALYZE"),
    **_reads(
        *("think_about_collected_information", "think_about_task_adherence", "think_about_whether_you_are_done"),
        intent="ANALYZE",
    ),
    **_changes("create_text_file", "replace_regex", "write_memory", "delete_memory", "activate_project"),
    **_changes("insert_at_line", "delete_lines", "replace_lines", "restart_language_server", "switch_modes"),
    **dict.fromkeys(
        ("rename_symbol", "replace_symbol_body", "insert_after_symbol", "insert_before_symbol"), _ON_A_SYMBOL
    ),
    "execute_shell_command": Preset("EXECUTE", "EXTERNAL_EXEC"),
}

SAP2000: Mapping[str, Preset] = {
    **_reads("search_oapi", "get_function_doc"),
    "generate_py_wrapper": Preset("GENERATE", "READ_ONLY"),
    "run_analysis": Preset("EXECUTE", "EXTERNAL_EXEC"),
}

PRESETS: Mapping[str, Mapping[str, Preset]] = {"serena": SERENA, "sap2000": SAP2000}
"""By the backend's id: an administrator chooses it by naming the backend so."""


def preset_for(backend: str, action: str) -> Preset | None:
    return PRESETS.get(backend.lower(), {}).get(action)
