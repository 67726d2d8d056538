"""Stop strings found in text that arrives in pieces. Knows no tokens.

Of all places where a stop occurs in the whole text the one that *starts* first is taken, and of several
stops that start there the one listed first. Where the pieces are cut changes neither that choice nor
the text shown. The automaton is Aho and Corasick's: its state is the longest end of the text so far that
begins some stop, so that end is all that is ever held back, and a character costs the same however long
the text and the stops are.

Source: A. V. Aho, M. J. Corasick, Efficient string matching, CACM 18(6), 1975.
"""

import re
from collections import deque
from collections.abc import Sequence

from mlxcel.errors import InputError

_NONE = -1


class StopMatcher:
    """Passes text through until a stop string occurs, and shows neither the stop nor what follows it.

    Changes: `matched` is set once, by the piece that settles the match, which is not always the piece
    that completes a stop: in 'abc' the stop 'bc' waits for the next character when 'abcd' is a stop too.
    Errors: InputError for an empty stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.matched: str | None = None
        self.rest = ""
        self._stops = tuple(stops)
        if "" in self._stops:
            raise InputError("a stop string must not be empty", param="stop")
        # One entry per node of the trie; node 0 is the root, the empty text.
        self._children: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._owner = [_NONE]  # the first stop in the list that begins with the node's text
        self._hit = [_NONE]  # the longest stop that ends the node's text
        self._fallback = [0]  # the node of the longest proper end of the node's text
        for index, stop in enumerate(self._stops):
            self._insert(index, stop)
        self._link()
        firsts = "".join(map(re.escape, self._children[0]))
        self._first = re.compile(f"[{firsts}]") if firsts else None
        self._node = 0
        self._n_seen = 0
        # The best match so far, kept while a better one is still possible.
        self._best = _NONE
        self._best_start = 0

    def feed(self, text: str) -> str:
        """Take the next piece of text; give what may be shown now."""
        if self.matched is not None or not text:
            return ""
        if self._first is None:
            return text
        n_held, held_by = self._depth[self._node], self._owner[self._node]
        held_from = self._n_seen - n_held
        if self._advance(text):
            shown_to = self._best_start
            self._match((self._stops[held_by][:n_held] + text) if n_held else text, held_from)
        else:
            shown_to = self._n_seen - self._depth[self._node]
        n_shown = shown_to - held_from
        if not n_held:
            return text[:n_shown]
        # What is held back is always the beginning of a stop, so it needs no copy of its own.
        held = self._stops[held_by]
        return held[:n_shown] if n_shown <= n_held else held[:n_held] + text[: n_shown - n_held]

    def flush(self) -> str:
        """No more text follows: give what was held back, up to the stop if there is one."""
        if self.matched is not None or not self._node:
            return ""
        n_shown = self._depth[self._node]
        if self._best != _NONE:
            n_shown -= self._n_seen - self._best_start
            self._match(
                self._stops[self._owner[self._node]][: self._depth[self._node]], self._n_seen - self._depth[self._node]
            )
        held = self._stops[self._owner[self._node]][:n_shown]
        self._node = 0
        return held

    def _match(self, text: str, start: int) -> None:
        """Settle on the best match, in a text that begins at `start`."""
        self.matched = self._stops[self._best]
        self.rest = text[self._best_start + len(self.matched) - start :]

    def _advance(self, text: str) -> bool:
        """Move over the text, or to where it settles the match: then True."""
        assert self._first is not None
        children, fallback = self._children, self._fallback
        node, at, end = self._node, 0, len(text)
        n_before = self._n_seen
        self._n_seen = n_before + end
        while at < end:
            if not node and self._best == _NONE:
                # Nothing is open: the next character that matters is one that begins a stop.
                found = self._first.search(text, at)
                if found is None:
                    break
                at = found.start()
            character = text[at]
            at += 1
            while node and character not in children[node]:
                node = fallback[node]
            node = children[node].get(character, 0)
            if self._hit[node] != _NONE:
                self._consider(self._hit[node], n_before + at)
            if self._best != _NONE and self._is_settled(node, n_before + at):
                self._node = node
                return True
        self._node = node
        return False

    def _consider(self, stop: int, end: int) -> None:
        start = end - len(self._stops[stop])
        if self._best == _NONE or (start, stop) < (self._best_start, self._best):
            self._best, self._best_start = stop, start

    def _is_settled(self, node: int, end: int) -> bool:
        """Whether nothing that is still open starts earlier, or at the same place and is listed earlier."""
        open_from = end - self._depth[node]
        if open_from == self._best_start:
            return self._owner[node] >= self._best
        return open_from > self._best_start

    def _insert(self, index: int, stop: str) -> None:
        node = 0
        for character in stop:
            child = self._children[node].get(character)
            if child is None:
                child = len(self._children)
                self._children[node][character] = child
                self._children.append({})
                self._depth.append(self._depth[node] + 1)
                self._owner.append(index)
                self._hit.append(_NONE)
                self._fallback.append(0)
            node = child
        if self._hit[node] == _NONE:
            self._hit[node] = index

    def _link(self) -> None:
        """Breadth first, so that the shorter ends a node falls back to are already linked."""
        waiting = deque(self._children[0].values())
        while waiting:
            node = waiting.popleft()
            for character, child in self._children[node].items():
                waiting.append(child)
                end = self._fallback[node]
                while end and character not in self._children[end]:
                    end = self._fallback[end]
                end = self._children[end].get(character, 0)
                self._fallback[child] = end
                if self._hit[child] == _NONE:
                    self._hit[child] = self._hit[end]
