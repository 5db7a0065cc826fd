"""How many coordinates may be minimised at once before they get in each other's way."""

import numpy as np
import numpy.typing as npt

from dmlcore import checks


def parallel_coordinates(features: npt.ArrayLike) -> float:
    """Returns d / rho(X'X): so many coordinates may be updated at once, each as if it were alone.

    It is d where the columns of X are orthogonal, 1 where they are the same. It holds for coordinates drawn
    at random, and counts every update that another does not see; beyond it descent may diverge.

    Args:
        features: X (samples, d), its columns of norm 1.

    Returns:
        Coordinates, from 1 to d.

    Raises:
        ValueError: `features` is no matrix, or a column has another norm.

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
        checks.fail("features", x.shape, "a matrix whose columns have norm 1")
    gram = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x  # both have the same largest eigenvalue
    return x.shape[1] / float(np.linalg.eigvalsh(gram.astype(float))[-1])
