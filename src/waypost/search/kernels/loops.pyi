import numpy as np
import numpy.typing as npt

def add_impacts(
    totals: npt.NDArray[np.int32], rows: npt.NDArray[np.uint32], impacts: npt.NDArray[np.uint16], weight: int
) -> None: ...
def hamming_distances(
    codes: npt.NDArray[np.uint64], query: npt.NDArray[np.uint64], ids: npt.NDArray[np.uint32] | None = None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]: ...
