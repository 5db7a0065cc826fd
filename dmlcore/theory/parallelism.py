"""The number of coordinates that can be minimised at the same time before they disturb each other."""

import numpy as np
import numpy.typing as npt

from dmlcore import checks


def parallel_coordinates(features: npt.ArrayLike) -> float:
    """Returns d / rho(X'X), the number of coordinates that can be updated at once as if each were alone.

    It is d if the columns of X are orthogonal, and 1 if they are the same. The bound holds for randomly drawn
    coordinates, and for all updates that do not see each other; beyond it the descent may diverge.

    Args:
        features: X with columns of norm 1, shape (N, D) for N samples and D = d coordinates.

    Returns:
        The number of coordinates that can be updated at once, from 1 to d.

    Raises:
        ValueError: `features` is not a matrix, or a column has another norm.

    >>> import numpy as np
    >>> parallel_coordinates(np.eye(8))
    8.0
    >>> round(parallel_coordinates(np.ones((1, 8))), 6)
    1.0

    Reference: Bradley, Kyrola, Bickson and Guestrin 2011, "Parallel coordinate descent for L1-regularized
    loss minimization", theorem 3.2.
    """
    x = np.asarray(features)
    if x.ndim != 2 or not np.allclose(np.linalg.norm(x, axis=0), 1, atol=1e-3):
        checks.reject("features", f"shape {x.shape}", "a matrix whose columns have norm 1")
    gram = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x  # both have the same largest eigenvalue
    return x.shape[1] / float(np.linalg.eigvalsh(gram.astype(float))[-1])
