"""How well search ranks, on the questions of the Python FAQ: ours beside bm25s alone, meaning alone and default RRF."""

from pathlib import Path

from bench.processes import django_at


def run(home: Path) -> str:
    django_at(home)
    from devflow.vectors import embedders
    from devflow.vectors.base import DENSE, TEXT
    from knowledge.evaluation import faq, trial
    from knowledge.evaluation.measures import paired_bootstrap
    from knowledge.services.search import WEIGHTS

    place = faq.folder()
    if place is None:
        raise RuntimeError("python3.11-doc is not installed: deploy/provide python3.11-doc")
    embedder = embedders.current()
    questions = faq.load(place, embedder.count_tokens)
    choosing, reporting = questions.halves()
    with trial.indexed(questions, embedder) as store:
        chosen = trial.best_weights(choosing, trial.ask(choosing, store, embedder))
        asked = trial.ask(reporting, store, embedder)
    scores = {
        "hybrid, weights of the product": trial.score(reporting, asked, trial.weighted(WEIGHTS)),
        "hybrid, weights chosen on the other half": trial.score(reporting, asked, trial.weighted(chosen)),
        "reranked without a model (fallback)": trial.score(reporting, asked, trial.weighted(WEIGHTS)),
        "semantic (meaning alone)": trial.score(reporting, asked, trial.leg(DENSE)),
        "words alone (our sparse vectors)": trial.score(reporting, asked, trial.leg(TEXT)),
        "bm25s alone": _bm25s(reporting),
        "default RRF, k = 60": trial.score(reporting, asked, trial.reciprocal_ranks()),
    }
    ours = scores["hybrid, weights of the product"]
    lines = [
        f"{len(questions.questions)} questions over {len(questions.passages)} passages; weights were chosen on every",
        f"second question ({_weights(chosen)}; the product has {_weights(WEIGHTS)}) and are reported on the other",
        f"{len(reporting.questions)}. The difference is hybrid minus the row, with its 95 % interval (paired",
        "bootstrap, 10,000 resamplings). `devflow eval` prints the whole set.",
        "",
        "| ranking | nDCG@10 | recall@10 | hybrid is better by |",
        "|---|---:|---:|---|",
    ]
    for name, score in scores.items():
        low, high = paired_bootstrap(ours.each, score.each)
        difference = f"{ours.ndcg - score.ndcg:+.3f} ({low:+.3f} to {high:+.3f})" if score.each != ours.each else ""
        lines.append(f"| {name} | {score.ndcg:.3f} | {score.recall:.3f} | {difference} |")
    return "\n".join(lines)


def _weights(weights: object) -> str:
    from devflow.vectors.base import DENSE, SYMBOLS, TEXT

    known = dict(weights)  # type: ignore[call-overload]
    return " / ".join(f"{name} {known[name]:.1f}" for name in (DENSE, TEXT, SYMBOLS))


def _bm25s(questions: object) -> object:
    import bm25s
    import Stemmer

    from knowledge.evaluation.faq import QuestionSet
    from knowledge.evaluation.measures import mean, ndcg, recall
    from knowledge.evaluation.trial import Score

    assert isinstance(questions, QuestionSet)
    stemmer = Stemmer.Stemmer("english")
    tokenized = bm25s.tokenize(
        [piece.embed_text for piece in questions.passages], stopwords="en", stemmer=stemmer, show_progress=False
    )
    model = bm25s.BM25()
    model.index(tokenized, show_progress=False)
    asked = bm25s.tokenize(
        [one.text for one in questions.questions], stopwords="en", stemmer=stemmer, show_progress=False
    )
    ranked, _ = model.retrieve(asked, k=100, show_progress=False)
    each = tuple(
        ndcg([int(place) for place in row], one.relevant) for row, one in zip(ranked, questions.questions, strict=True)
    )
    found = [
        recall([int(place) for place in row], one.relevant)
        for row, one in zip(ranked, questions.questions, strict=True)
    ]
    return Score(mean(each), mean(found), each)
