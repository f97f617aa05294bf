"""Tools that find: passages and code examples."""

from typing import Literal

from knowledge.services import answers, citations, examples
from knowledge.tools.results import CodeExampleResult, ExampleFound, Query, SearchResult, TopK
from mcpbridge.tooling import Caller, Effect, Intent, JsonObject, ShortText, tool


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="knowledge")
def search_knowledge(
    caller: Caller,
    *,
    query: Query,
    mode: Literal["semantic", "hybrid", "reranked"] = "hybrid",
    top_k: TopK = 10,
    filters: JsonObject | None = None,
    include_code_examples: bool = False,
    explain: bool = False,
) -> SearchResult:
    """Search the project's knowledge base before you guess: documentation, code and notes the team has added.

    Ask as you would ask a colleague, and name identifiers exactly. Every result cites its document, heading and
    lines; `metadata.resource` can be read for the whole document. `degraded` tells when only part of the search ran.

    Args:
        query: What to look for, in words or identifiers.
        mode: semantic compares meaning only, hybrid adds keywords and exact identifiers, reranked has a language model
            order the best (slower; falls back to hybrid and says so).
        top_k: How many results, 1 to 200.
        filters: tags (all of them), sources (ids, any of them), has_code (true or false).
        include_code_examples: Also give the code blocks of each result.
        explain: Also give each result's score by part.
    """
    made = answers.answer(
        project_id=caller.project.id,
        query=query,
        mode=mode,
        top_k=top_k,
        filters=filters,
        include_code_examples=include_code_examples,
        explain=explain,
    )
    return SearchResult.model_validate(made)


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="knowledge")
def get_code_examples(
    caller: Caller, *, topic: Query, language: ShortText | None = None, top_k: TopK = 5
) -> CodeExampleResult:
    """Find code that shows how something is done here: blocks of the documentation, doctests, functions and classes.

    Each comes with the sentence that introduces it and where it stands.

    Args:
        topic: What the code should show.
        language: Only this programming language, such as python, typescript or shell.
        top_k: How many examples, 1 to 200.
    """
    found, search = examples.find(
        project_id=caller.project.id, topic=topic, language=examples.canonical(language or ""), top_k=top_k
    )
    return CodeExampleResult(
        examples=[
            ExampleFound(
                code=example.code,
                language=example.language,
                context=example.context,
                source=example.source.title,
                url=citations.url(example),
                symbols=example.symbols,
                is_valid=example.is_valid,
                metadata={
                    "document": example.document.path,
                    "document_id": example.document.public_id,
                    "lines": [example.start_line, example.end_line],
                    "hash": example.hash,
                    "open": citations.opens(example.document_id, example.start_line, example.end_line),
                    "stale": citations.is_stale(example.document, example.source),
                },
            )
            for example in found
        ],
        degraded=bool(search.reason),
        reason=search.reason,
    )
