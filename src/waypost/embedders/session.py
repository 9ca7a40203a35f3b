"""Sessions of onnxruntime, which runs every network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_ERRORS_ONLY = 3
_SLOWER = ("SkipLayerNormFusion",)  # on a processor, the fused operator takes five times as long as its parts


class ModelSession:
    """One network on the CPU, with one thread: the processes and threads of a service share the cores already. Thread-safe."""

    def __init__(self, graph: Path | bytes, weights: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        """`weights` are the initializers that the graph declares as external; they are used in place, not copied.

        Raises whatever onnxruntime raises, which is not only one class."""
        import onnxruntime  # takes a tenth of a second, in the thread that loads the model

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        names = list(weights or ())
        self._weights = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray((weights or {})[n])) for n in names
        ]
        if names:
            options.add_external_initializers(names, self._weights)
        self._session = onnxruntime.InferenceSession(
            graph if isinstance(graph, bytes) else str(graph),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=list(_SLOWER),
        )
        self.inputs = frozenset(given.name for given in self._session.get_inputs())

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], output: str | None = None) -> npt.NDArray[Any]:
        """The output of this name, or the first one. Inputs that the graph does not have are left out."""
        given = {name: array for name, array in inputs.items() if name in self.inputs}
        found: npt.NDArray[Any] = self._session.run(None if output is None else [output], given)[0]
        return found
