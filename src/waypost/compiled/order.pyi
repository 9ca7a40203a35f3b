import numpy as np
import numpy.typing as npt

def ordered(
    scores: npt.NDArray[np.float64],
    worth: npt.NDArray[np.float32],
    deprecated: npt.NDArray[np.uint8],
    marks: npt.NDArray[np.uint64],
    kept: float,
    grid: float,
) -> tuple[bytes, bytes]: ...
def texts(
    written: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.uint32]
) -> list[str]: ...
