"""Requests as policies see them, and patterns of policies: wildcards, variables and ARNs.

Matching takes at most the product of both lengths: the parts between two `*` are searched from left
to right, without backtracking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

Context = Mapping[str, Sequence[str]]
"""Values of condition keys by lower-case name: names are not case-sensitive. A key without a value
is absent."""


class Principal(NamedTuple):
    """The maker of a request: a member of an account, a service, or anonymous."""

    account_id: str = ""
    """Empty for services and anonymous callers."""
    arns: tuple[str, ...] = ()
    """All ARNs of the caller: of a user its own, of a role's session the role's and its own, of an
    account itself (its root user) that of its root."""
    service: str = ""

    @property
    def is_account(self) -> bool:
        return bool(self.account_id) and self.arns == (account_arn(self.account_id),)


class PolicyRequest(NamedTuple):
    """A request as policies see it."""

    principal: Principal
    action: str
    """With its service: `sqs:SendMessage`."""
    resource: str
    owner_id: str
    context: Context


def account_arn(account_id: str) -> str:
    return f"arn:aws:iam::{account_id}:root"


Matcher = Callable[[str, Context], bool]

ARN_SEGMENTS: Final = 6
_MOST_SEGMENTS: Final = 16
"""Later colons separate nothing: no ARN has as many, and work stays bounded."""
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NAMED = re.compile(r"([A-Za-z0-9_.+=,@:/-]+?)(?:\s*,\s*'([^']*)')?")
_ONE: Final = ""
"""A position that any one character matches."""


class _Any(NamedTuple):
    """`*`: any characters, or none."""


class _Variable(NamedTuple):
    """`${key}`, or `${key, 'default'}`."""

    key: str
    default: str | None


_Token = str | _Any | _Variable
"""A text is one literal character, or _ONE."""


class Syntax(NamedTuple):
    """The special syntax of a text in a policy."""

    has_wildcards: bool
    has_variables: bool
    """Version 2012-10-17 introduced variables."""


def _tokens(text: str, syntax: Syntax) -> Iterator[_Token]:
    end = 0
    if syntax.has_variables:
        for found in _VARIABLE.finditer(text):
            yield from _characters(text[end : found.start()], syntax)
            yield from _variable(found[0], found[1].strip())
            end = found.end()
    yield from _characters(text[end:], syntax)


def _characters(text: str, syntax: Syntax) -> Iterator[_Token]:
    if not syntax.has_wildcards:
        yield from text
        return
    for character in text:
        if character == "*":
            yield _Any()
        else:
            yield _ONE if character == "?" else character


def _variable(whole: str, inner: str) -> Iterator[_Token]:
    if inner in ("*", "?", "$"):
        yield inner
        return
    named = _NAMED.fullmatch(inner)
    if named is None:
        yield from whole
    else:
        yield _Variable(named[1].lower(), named[2])


def _filled(tokens: Iterable[_Token], context: Context, longest: int) -> list[str | _Any] | None:
    """Replace variables by their values, which have no wildcards. None: a variable has no value or
    several, or the result is too long for a text of that length."""
    filled: list[str | _Any] = []
    least = 0
    for token in tokens:
        if isinstance(token, _Variable):
            values = context.get(token.key, ())
            if len(values) > 1 or not (values or token.default is not None):
                return None
            value = values[0] if values else token.default or ""
            least += len(value)
            if least > longest:
                return None
            filled += value
        else:
            filled.append(token)
    return filled


class _Part:
    """The characters between two `*`."""

    def __init__(self, characters: list[str]) -> None:
        self.length = len(characters)
        self._characters = characters
        self._text = None if _ONE in characters else "".join(characters)
        self._masks: dict[str, int] | None = None

    def stands_at(self, text: str, start: int) -> bool:
        if self._text is not None:
            return text.startswith(self._text, start)
        there = text[start : start + self.length]
        return len(there) == self.length and all(
            wanted in (_ONE, has) for wanted, has in zip(self._characters, there, strict=True)
        )

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first position between start and end; -1: there is none."""
        if self._text is not None:
            return text.find(self._text, start, end)
        masks = self._masks
        if masks is None:
            masks = self._masks = self._masked()
        # Each bit is a prefix of the part that ends here: one step moves all of them.
        anything, last = masks[_ONE], 1 << (self.length - 1)
        state = 0
        for place in range(start, end):
            state = ((state << 1) | 1) & masks.get(text[place], anything)
            if state & last:
                return place - self.length + 1
        return -1

    def _masked(self) -> dict[str, int]:
        masks = dict.fromkeys([_ONE, *self._characters], 0)
        anywhere = 0
        for place, character in enumerate(self._characters):
            if character == _ONE:
                anywhere |= 1 << place
            else:
                masks[character] |= 1 << place
        return {character: mask | anywhere for character, mask in masks.items()}


class Glob:
    """A pattern without variables."""

    def __init__(self, tokens: Iterable[str | _Any]) -> None:
        parts: list[list[str]] = [[]]
        for token in tokens:
            if isinstance(token, _Any):
                parts.append([])
            else:
                parts[-1].append(token)
        self._head = _Part(parts[0])
        self._is_whole = len(parts) == 1
        self._middle = [_Part(part) for part in parts[1:-1] if part]
        self._tail = _Part(parts[-1])
        self._least = sum(map(len, parts))
        self.is_anything = len(parts) > 1 and not self._least

    def matches(self, text: str) -> bool:
        if self.is_anything:
            return True
        if len(text) < self._least or not self._head.stands_at(text, 0):
            return False
        if self._is_whole:
            return len(text) == self._least
        start, end = self._head.length, len(text) - self._tail.length
        if not self._tail.stands_at(text, end):
            return False
        for part in self._middle:
            found = part.find(text, start, end)
            if found < 0:
                return False
            start = found + part.length
        return True


def any_of(texts: Iterable[str], syntax: Syntax) -> Matcher:
    """Return a matcher of texts that match one of these patterns."""
    exact: set[str] = set()
    globs: list[Glob] = []
    templates: list[list[_Token]] = []
    for text in texts:
        tokens = [*_tokens(text, syntax)]
        fixed = [token for token in tokens if not isinstance(token, _Variable)]
        if len(fixed) < len(tokens):
            templates.append(tokens)
        elif any(isinstance(token, _Any) or token == _ONE for token in fixed):
            globs.append(Glob(fixed))
        else:
            exact.add("".join(map(str, fixed)))

    def matches(text: str, context: Context) -> bool:
        if text in exact or any(glob.matches(text) for glob in globs):
            return True
        for template in templates:
            filled = _filled(template, context, len(text))
            if filled is not None and Glob(filled).matches(text):
                return True
        return False

    return matches


class _Field(NamedTuple):
    """The part of a pattern between two colons."""

    glob: Glob
    crosses: bool
    """The field ends with `*`, which matches across colons."""


def any_arn_of(texts: Iterable[str], *, has_variables: bool, is_resource: bool) -> Matcher:
    """Return a matcher of ARNs that match one of these patterns. Each of the six segments matches
    on its own, and `*` alone is every ARN. In a Resource (``is_resource``) a `*` at the end of a
    segment also matches across colons, and a text with fewer than six segments continues with `*`,
    too."""
    exact: set[str] = set()
    fixed: list[list[_Field]] = []
    templates: list[list[list[_Token]]] = []
    for text in texts:
        tokens = [*_tokens(text, Syntax(has_wildcards=True, has_variables=has_variables))]
        for segments in _ways(
            _segments(tokens), is_everything=text == "*", is_resource=is_resource
        ):
            plain = [[one for one in part if not isinstance(one, _Variable)] for part in segments]
            if plain != segments:
                templates.append(segments)
            elif all(isinstance(one, str) and one != _ONE for part in plain for one in part):
                exact.add(":".join("".join(map(str, part)) for part in plain))
            else:
                fixed.append([_field(part, is_resource) for part in plain])

    def matches(arn: str, context: Context) -> bool:
        if arn in exact:
            return True
        given = arn.split(":", _MOST_SEGMENTS - 1)
        if len(given) < ARN_SEGMENTS:
            return False
        return any(_agree(fields, given) for fields in fixed) or any(
            _agree(_fields(segments, arn, context, is_resource), given) for segments in templates
        )

    return matches


def _segments(tokens: Iterable[_Token]) -> list[list[_Token]]:
    """Split tokens at colons; the last of six segments keeps the remaining colons."""
    segments: list[list[_Token]] = [[]]
    for token in tokens:
        if token == ":" and len(segments) < ARN_SEGMENTS:
            segments.append([])
        else:
            segments[-1].append(token)
    return segments


def _ways(
    segments: list[list[_Token]], *, is_everything: bool, is_resource: bool
) -> Iterator[list[list[_Token]]]:
    """Return the patterns of a text: as written, and completed to six segments."""
    if len(segments) == ARN_SEGMENTS or is_resource:
        yield segments
    if len(segments) < ARN_SEGMENTS and (is_resource or is_everything):
        missing: list[list[_Token]] = [[_Any()]] * (ARN_SEGMENTS - len(segments))
        yield segments + missing


def _field(tokens: list[str | _Any], is_resource: bool) -> _Field:
    return _Field(Glob(tokens), is_resource and bool(tokens) and isinstance(tokens[-1], _Any))


def _fields(
    segments: list[list[_Token]], arn: str, context: Context, is_resource: bool
) -> list[_Field]:
    """Return the fields with the values of variables; empty: one has no suitable value."""
    filled = [_filled(part, context, len(arn)) for part in segments]
    return [] if None in filled else [_field(part or [], is_resource) for part in filled]


def _agree(fields: list[_Field], given: list[str]) -> bool:
    """Return True if the segments of an ARN match the fields, from the first to the last."""
    if not fields:
        return False
    places = {0}
    for glob, crosses in fields[:-1]:
        places = {at + 1 for at in places if at < len(given) and glob.matches(given[at])}
        if crosses and places:
            places = {*range(min(places), len(given))}
    glob, crosses = fields[-1]
    for at in places - {len(given)}:
        # The last segment of an ARN may have colons of its own.
        is_last = at >= ARN_SEGMENTS - 1
        text = ":".join(given[at:]) if is_last else given[at]
        if (is_last or crosses) and glob.matches(text):
            return True
    return False
