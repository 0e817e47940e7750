"""Tokens of IR text, and the places of errors in it.

Enters: a text. Leaves: a list of tokens that ends with one of kind `end`; comments are kept aside by line.
Refuses: characters that begin no token.
"""

from __future__ import annotations

import re
from typing import NoReturn

from graphcell.errors import ParseError, Span
from graphcell.records import dataclass

_TOKEN = re.compile(
    r"""
      (?P<space>   [ \t\r\n]+ )
    | (?P<comment> //[^\n]* )
    | (?P<value>   %(?: [0-9]+ | [^\W\d][\w.$]* | "(?:[^"\\\n]|\\.)*" ) )
    | (?P<graph>   @(?: [^\W\d][\w.$]* | "(?:[^"\\\n]|\\.)*" ) )
    | (?P<bytes>   0x[0-9a-f]* )
    | (?P<number>  -?(?: [0-9]+\.[0-9]*(?:e[+-]?[0-9]+)? | [0-9]+e[+-]?[0-9]+ | [0-9]+ | inf\b ) | -?nan\b )
    | (?P<digest>  ~[0-9a-f]+ )
    | (?P<name>    [^\W\d]\w* )
    | (?P<string>  "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<mark>    -> | [=,:()\[\]{}] )
    """,
    re.VERBOSE,
)

PLAIN_NAME = re.compile(r"[^\W\d][\w.$]*\Z")
"""Names of values and graphs that are written without quotes."""


@dataclass(frozen=True, slots=True)
class TextSpan(Span):
    """A place in IR text that need not be in a file: it knows its own line."""

    text: str = ""

    @property
    def source(self) -> str:
        return self.text


@dataclass(slots=True)
class Token:
    kind: str
    text: str
    offset: int


class Source:
    """A text with its name, which places errors."""

    def __init__(self, text: str, file: str):
        self.text = text
        self.file = file
        self.comments: dict[int, str] = {}  # offset of the line's begin -> comment without slashes

    def span(self, token: Token) -> TextSpan:
        begin = self.line_begin(token.offset)
        end = self.text.find("\n", begin)
        line_text = self.text[begin : end if end >= 0 else len(self.text)].rstrip()
        line = self.text.count("\n", 0, begin) + 1
        column = token.offset - begin
        return TextSpan(self.file, line, column, line, column + len(token.text), text=line_text)

    def line_begin(self, offset: int) -> int:
        return self.text.rfind("\n", 0, offset) + 1

    def fail(self, token: Token, message: str, hint: str = "", cause: Exception | None = None) -> NoReturn:
        """Raises the ParseError for `token`."""
        raise ParseError(message, hint=hint, span=self.span(token)) from cause


def tokenize(source: Source) -> list[Token]:
    """The tokens of `source`; its comments go to `source.comments`.

    Raises:
        ParseError: at a character that begins no token.
    """
    text, tokens, offset = source.text, [], 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            source.fail(Token("?", text[offset], offset), f"unexpected character {text[offset]!r}")
        kind = match.lastgroup or ""
        if kind == "comment":
            source.comments[source.line_begin(offset)] = match.group()[2:].strip()
        elif kind != "space":
            tokens.append(Token(kind, match.group(), offset))
        offset = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens
