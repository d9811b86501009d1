"""A SQL file as text and tokens, the places in it, and errors that point at them.

What statements there are is `parse`'s to know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from kafka_assets.declarations.model import Place
from kafka_assets.declarations.places import shortened
from kafka_assets.errors import DeclarationError

DIALECT = Databricks()

_VALUES = (
    TokenType.STRING,
    TokenType.RAW_STRING,
    TokenType.HEX_STRING,
    TokenType.NUMBER,
    TokenType.IDENTIFIER,
)
STATEMENT = "SQL statement"

_SECRET = re.compile(
    r"(?i)((?:password|passphrase|secret|token|jaas|credential|(?:access|ssl)[._]?key)"
    r"[\w.`'\"]*\s*(?:(?:=>|=|,)?\s*(?=['\"])|=\s*(?=[^\s>])))('[^']*'?|\"[^\"]*\"?|[^\s;]+)"
)
"""A name that speaks of a secret, and the value behind it, which may end on a later line."""


@dataclass(frozen=True)
class Shift:
    """A value that was put in the place of something written.

    Attributes:
        start: Where the value begins.
        end: Where it ends.
        written: Where what is written began.
        written_end: Where that ended.
    """

    start: int
    end: int
    written: int
    written_end: int


@dataclass(frozen=True)
class Source:
    """A SQL file.

    Attributes:
        file: Its path, as messages name it.
        text: What it holds, with values in their places.
        written: What it holds as it is written, where values were put in.
        shifts: The values, in order.
    """

    file: str
    text: str
    written: str | None = None
    shifts: tuple[Shift, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read a file.

        Raises:
            DeclarationError: It cannot be read, or is no UTF-8.
        """
        file = shortened(str(path.resolve()))
        try:
            return cls(file, path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise DeclarationError(
                f"SQL file {path.name!r}",
                file,
                f"cannot be read: {error}",
                fix="save it as UTF-8, readable for this user",
            ) from None

    def place(self, offset: int) -> Place:
        """File, line and column of a character, as they are written."""
        for shift in reversed(self.shifts):
            if shift.start <= offset:
                behind = max(offset - shift.end, 0)
                offset = shift.written if offset < shift.end else shift.written_end + behind
                break
        before = (self.written or self.text)[:offset]
        return Place(self.file, before.count("\n") + 1, offset - before.rfind("\n"))

    def refused(self, subject: str, offset: int, what: str, fix: str) -> DeclarationError:
        """An error that names a place and shows its line."""
        place = self.place(offset)
        return DeclarationError(subject, str(place), f"{what}\n{self.shown(place)}", fix=fix)

    def shown(self, place: Place) -> str:
        """The line of a place, with a mark below its column; values of secrets are stars."""
        lines = (self.written or self.text).splitlines()
        line = lines[place.line - 1] if place.line <= len(lines) else ""
        line = _SECRET.sub(lambda found: found[1] + "*" * len(found[2]), line)
        number = f"  {place.line} | "
        # A tab is shown as wide as it is written, so that the mark stands below its column.
        indent = re.sub(r"[^\t]", " ", line[: place.column - 1])
        return f"{number}{line}\n{' ' * len(number)}{indent}^"

    def statements(self) -> list[list[Token]]:
        """The tokens of each statement; comments and empty statements are left out.

        Raises:
            DeclarationError: A string or comment does not end.
        """
        try:
            tokens = DIALECT.tokenize(self.text)
        except TokenError as error:
            raise self._unreadable(error) from None
        found: list[list[Token]] = [[]]
        for token in tokens:
            if token.token_type == TokenType.SEMICOLON:
                found.append([])
            else:
                found[-1].append(token)
        return [statement for statement in found if statement]

    def _unreadable(self, error: TokenError) -> DeclarationError:
        cause = str(error.__cause__ or error)
        known = re.search(r"from (\d+):(\d+)", cause)
        offset = len(self.text.rstrip())
        if known is not None:
            lines = self.text.splitlines(keepends=True)
            offset = sum(map(len, lines[: int(known[1]) - 1])) + max(int(known[2]) - 1, 0)
        what = cause.splitlines()[0] if known else "a string, name or comment does not end"
        return self.refused(STATEMENT, offset, what, "close it")

    def between(self, tokens: list[Token]) -> str:
        """The text from the first of these tokens to the last, with values in their places."""
        return self.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""


class Cursor:
    """Reads the tokens of a statement, one after the other.

    Args:
        source: The file.
        tokens: The statement's tokens.
    """

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        self.source, self.tokens, self.at = source, tokens, 0
        self.subject = STATEMENT

    @property
    def token(self) -> Token | None:
        """The next token; None at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    @property
    def offset(self) -> int:
        """Where the next token stands; at the end, where the last one does."""
        return self.tokens[min(self.at, len(self.tokens) - 1)].start

    def sees(self, *words: str) -> bool:
        """Whether these words or signs come next."""
        return self._tokens_of(words) > 0

    def takes(self, *words: str) -> bool:
        """Go past these words when they come next."""
        tokens = self._tokens_of(words)
        self.at += tokens
        return tokens > 0

    def _tokens_of(self, words: tuple[str, ...]) -> int:
        """How many tokens these words are; 0 when others come next."""
        left = list(words)
        for number, token in enumerate(self.tokens[self.at :], 1):
            # Some pairs of words are one token.
            parts = token.text.upper().split()
            if token.token_type in _VALUES or left[: len(parts)] != parts:
                return 0
            left = left[len(parts) :]
            if not left:
                return number
        return 0

    def needs(self, *words: str) -> None:
        """Go past these words.

        Raises:
            DeclarationError: Something else comes.
        """
        if not self.takes(*words):
            raise self.unexpected(" ".join(words))

    def name(self, what: str) -> tuple[tuple[str, ...], int]:
        """Go past a name, with its parts in lower case as SQL means it.

        Args:
            what: What it names, for messages.

        Returns:
            The parts, and where it stands.
        """
        start = self.offset
        parts = [self.identifier(what).lower()]
        while self.takes("."):
            parts.append(self.identifier(what).lower())
        return tuple(parts), start

    def identifier(self, what: str) -> str:
        """Go past a name without dots, and give it as it is written."""
        token = self.token
        if token is None or not (
            token.token_type == TokenType.IDENTIFIER
            or (token.token_type not in _VALUES and re.fullmatch(r"\w+", token.text))
        ):
            raise self.unexpected(what)
        self.at += 1
        return token.text

    def string(self, what: str) -> str:
        """Go past a string, and give what is in it."""
        token = self.token
        if token is None or token.token_type not in (TokenType.STRING, TokenType.RAW_STRING):
            raise self.unexpected(f"{what} in quotes")
        self.at += 1
        return token.text

    def inside(self) -> list[Token]:
        """Go past brackets, and give the tokens between them."""
        start = self.offset
        self.needs("(")
        first, depth = self.at, 1
        while (token := self.token) is not None:
            depth += (token.token_type == TokenType.L_PAREN) - (
                token.token_type == TokenType.R_PAREN
            )
            self.at += 1
            if depth == 0:
                return self.tokens[first : self.at - 1]
        raise self.source.refused(self.subject, start, "this bracket is not closed", "close it")

    def listed(self, what: str) -> tuple[str, ...]:
        """Go past names of columns in brackets, separated by commas."""
        self.needs("(")
        names = [self.identifier(what)]
        while self.takes(","):
            names.append(self.identifier(what))
        self.needs(")")
        return tuple(names)

    def rest(self) -> list[Token]:
        """All that comes."""
        rest, self.at = self.tokens[self.at :], len(self.tokens)
        return rest

    def unexpected(self, wanted: str) -> DeclarationError:
        """An error about the next token."""
        if self.token is None:
            what = f"ends where {wanted} should come"
        else:
            what = f"{self.word()!r} stands where {wanted} should"
        return self.refused(what, f"write {wanted} here")

    def refused(self, what: str, fix: str, offset: int | None = None) -> DeclarationError:
        """An error about this statement, at the next token or another place."""
        where = self.offset if offset is None else offset
        return self.source.refused(self.subject, where, what, fix)

    def word(self) -> str:
        """The text of the next token, with its quotes."""
        token = self.token
        return "" if token is None else self.source.text[token.start : token.end + 1]
