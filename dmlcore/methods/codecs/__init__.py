"""Codecs: how gradients and parameters are rounded for a transfer, and how many bytes the transfer takes."""

from collections.abc import Callable

from dmlcore import calls
from dmlcore.methods.codecs.affine import affine, exact
from dmlcore.methods.codecs.gradients import one_bit, qsgd, terngrad
from dmlcore.methods.codecs.memory import difference, error_feedback
from dmlcore.methods.codecs.message import Coded, transmit
from dmlcore.methods.codecs.widths import bits_for_error, bits_that_hide, of_width
from dmlcore.types import Codec

__all__ = ["CODECS", "affine", "difference", "error_feedback", "exact", "one_bit", "qsgd", "terngrad"]
__all__ += ["Coded", "bits_for_error", "bits_that_hide", "of_width", "resolve", "transmit"]

# Every codec in this table can be given by name, and runs through the tests of all codecs.
CODECS: dict[str, Callable[..., Codec]] = {
    codec.__name__: codec for codec in (exact, affine, qsgd, terngrad, one_bit, error_feedback, difference)
}


def resolve(codec: Codec | str) -> Codec:
    """Returns a codec from an object or its name.

    Guarantees: `resolve(codec.name) is codec` for the codecs of this package. A name is parsed and never
    executed: it may contain only registered codecs and literals.

    Args:
        codec: a codec, or a call such as `"error_feedback(affine(bits=4))"`, or the bare name.

    Returns:
        The codec.

    Raises:
        ValueError: the string is not such a call, or an argument in it is wrong.

    >>> resolve("error_feedback(affine(4))")
    error_feedback(affine(bits=4))
    >>> resolve("affine(bits=40)")
    Traceback (most recent call last):
    ValueError: bits: expected a whole number from 1 to 16 (32 is exact()), got 40
    """
    return codec if isinstance(codec, Codec) else calls.made("codec", codec, CODECS)
