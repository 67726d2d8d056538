"""Tokens to text: incremental detokenising and stop strings. Pure: knows no model, tensor or protocol."""

from mlxcel.text.detokenize import Detokenizer
from mlxcel.text.stop import StopMatcher
from mlxcel.text.stream import TextStream
from mlxcel.text.window import WindowDetokenizer

__all__ = ["Detokenizer", "StopMatcher", "TextStream", "WindowDetokenizer"]
