"""Codecs: how gradients and parameters are rounded on their way, and how many bytes they then are."""

from dmlcore.methods.codecs.affine import affine, exact
from dmlcore.methods.codecs.gradients import one_bit, qsgd, terngrad
from dmlcore.methods.codecs.memory import difference, error_feedback
from dmlcore.methods.codecs.message import Coded, transmit
from dmlcore.methods.codecs.names import CODECS, resolve
from dmlcore.methods.codecs.widths import bits_for_error, bits_that_hide, of_width

__all__ = [
    "CODECS",
    "Coded",
    "affine",
    "bits_for_error",
    "bits_that_hide",
    "difference",
    "error_feedback",
    "exact",
    "of_width",
    "one_bit",
    "qsgd",
    "resolve",
    "terngrad",
    "transmit",
]
