"""Codecs: how gradients and parameters are rounded on their way, and how many bytes they then are."""

from dmlcore.codecs.affine import affine, exact
from dmlcore.codecs.gradients import one_bit, qsgd, terngrad
from dmlcore.codecs.memory import difference, error_feedback
from dmlcore.codecs.message import Coded, transmit
from dmlcore.codecs.names import CODECS, resolve
from dmlcore.codecs.packing import pack, unpack
from dmlcore.codecs.widths import bits_for_error, bits_that_hide, of_width

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
    "pack",
    "qsgd",
    "resolve",
    "terngrad",
    "transmit",
    "unpack",
]
