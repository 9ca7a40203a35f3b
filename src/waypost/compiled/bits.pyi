import numpy as np
import numpy.typing as npt

def near_each(fingerprints: npt.NDArray[np.uint64], places: npt.NDArray[np.intp]) -> bytes: ...
