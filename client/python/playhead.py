# SPDX-License-Identifier: Apache-2.0
"""Playhead for Python: say what users played, and read where they stopped.

One file, nothing to install, Python 3.9 or later. Copy it, or put its folder on the path.

    from playhead import Client, heartbeat

    ann = Client("http://127.0.0.1:8080", token)       # a token names its user
    ann.report(heartbeat(1, "100", "stop", position_ms=61_000, duration_ms=5_400_000, session="3f2c"))
    ann.point(1, "100")["resume_ms"]                    # 61000
    for record in ann.list():
        print(record["object"]["id"], record["position_ms"])

Times are datetimes with a zone, or RFC 3339 texts; positions and durations are milliseconds.
Records come as the API writes them: see docs/players.md.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import json
import os
import random
import re
import selectors
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

__all__ = ["Client", "Error", "Unsent", "heartbeat"]

MARKS = ("watched", "unwatched", "reset")
KINDS = ("start", "progress", "pause", "seek", "stop", "finish")
MAX_HEARTBEATS = 1000  # of a request
MAX_BYTES = (1 << 20) - 1024  # of a request's heartbeats
MAX_IMPORT = 8 << 20  # bytes of lines that are sent at once
ROOM = 64 << 10  # bytes that a request begins with
MAX_KEPT = 10_000  # times of heartbeats that were not sent
SLOWEST = 1000  # bytes a second that get through
PIECE = 16 << 10  # bytes that are sent at once
SOON = 1.5  # seconds between attempts to reach an edge that is away, at most
SILENCE = 75  # seconds; the edge pings after 30

_CODES = {
    0: "unreachable", 400: "invalid", 401: "unauthorized", 408: "timeout", 413: "too_large", 422: "invalid",
    429: "rate_limited", 500: "internal", 502: "unavailable", 503: "unavailable", 504: "timeout",
}

Json = dict[str, Any]
Time = Union[datetime, str]
Object = tuple[int, str]  # type and id


class Error(Exception):
    """A failed request: its HTTP ``status``, 0 without an answer; a ``code`` that names the kind
    of failure, such as unreachable, timeout or invalid; and the ``problem`` of the edge."""

    def __init__(self, status: int, problem: Json, code: str = ""):
        self.status, self.problem, self.code = status, problem, code or _CODES.get(status, "refused")
        wrong = "; ".join(f"{e.get('field')}: {e.get('reason')}" for e in problem.get("errors") or [])
        text = str(problem.get("detail") or problem.get("title") or "no answer")
        super().__init__((f"{status}: " if status else "") + text + (f" ({wrong})" if wrong else ""))


class Unsent(Error):
    """The edge has not answered in time. ``heartbeats`` are those without an answer, which may
    be reported again at any time: what is stored already counts once. ``results`` has the
    answers to the others, and None for these."""

    def __init__(self, heartbeats: list[Json], results: list[Optional[Json]], cause: object):
        found = _failed(cause) if isinstance(cause, Exception) else Error(0, {}, "unavailable")
        super().__init__(0, {"detail": f"{len(heartbeats)} heartbeats without an answer: {cause}"}, found.code)
        self.status, self.heartbeats, self.results = found.status, heartbeats, results


def _failed(error: Exception) -> Error:
    """An error of the connection as an Error."""
    if isinstance(error, Error):
        return error
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return Error(0, {"detail": str(error)}, "timeout" if isinstance(reason, TimeoutError) else "")


def heartbeat(
    type: int, id: str, kind: str, position_ms: int, *, at: Optional[Time] = None, duration_ms: Optional[int] = None,
    session: Optional[str] = None, device: Optional[str] = None, meta: Optional[dict[str, Optional[str]]] = None, **more: Any,
) -> Json:
    """A report of a player. ``kind`` is start, progress, pause, seek, stop or finish; ``at`` is when
    it happened, by default now. ``more`` are other
    fields of the API, as it writes them: watched_ms, started_at, speed, if_match, incognito, failed.
    A key of ``meta`` that is None is removed from the record; keys that are left out stay."""
    _object((type, id))
    for name, value in (("position_ms", position_ms), ("duration_ms", duration_ms or 0)):
        if not isinstance(value, (int, float)):
            raise TypeError(f"{name} {value!r}: want a number")
    if kind not in KINDS:
        raise TypeError(f"kind {kind!r}: want one of {', '.join(KINDS)}")
    beat = {
        "object": {"type": type, "id": id}, "kind": kind, "position_ms": round(position_ms),
        "event_time": _time(at or datetime.now(timezone.utc), "microseconds"),
        "duration_ms": None if duration_ms is None else round(duration_ms),
        "session": session, "device": device, "meta": meta, **more,
    }
    return {name: value for name, value in beat.items() if value is not None}


class Client:
    """One user's history. ``token`` is the user's, or a function that returns one, which is asked
    for each request. ``timeout_s`` bounds a read or a decision with its retries, one message of a
    report, and of an export each part that is read; ``patience_s`` how long a report or an
    import goes on trying while the edge is away or busy. ``recorded`` says that
    heartbeats come from a file or another history, whose times are right: they are sent as they
    are, so that what is sent again is known already. A Client may be used by one thread at a
    time."""

    def __init__(
        self, url: str, token: Union[str, Callable[[], str]], *,
        timeout_s: float = 10.0, patience_s: float = 120.0, recorded: bool = False,
    ):
        if not isinstance(url, str) or not re.match(r"https?://[^/]", url):
            raise TypeError(f"url {url!r}: want one such as https://edge.example.com")
        if not token or not isinstance(token, str) and not callable(token):
            raise TypeError("token: want a text, or a function that returns one")
        for name, value in (("timeout_s", timeout_s), ("patience_s", patience_s)):
            _want(name, value, (int, float), "a number of seconds")
        self._url, self._token = url.rstrip("/"), token
        self._timeout, self._patience, self._recorded = timeout_s, patience_s, recorded
        self._room = ROOM
        self._offset: Optional[float] = None  # of the history's time to time.monotonic()
        self._zero = 0.0  # what this machine's clock showed when that was 0
        self._last = (_BEGINNING, _BEGINNING)  # when the last heartbeat was made, and as it was dated
        self._kept: dict[datetime, datetime] = {}  # the same of those that were not sent

    # Reports.

    def report(self, *heartbeats: Json, queued: bool = False) -> List[Json]:
        """Reports any number of heartbeats and returns what became of each, in order: a dict with
        ``status`` (stored, unchanged, stale, ...), for invalid ones ``error``, and for stale
        ones the report's ``event_time`` and the record's ``record_time``. Reports that the edge
        fails on are sent again; raises Unsent when patience ends before all have an answer.
        ``queued`` asks for an acknowledgement that outlives the cache.

        Times are by this machine's clock as it is now. They are sent as those of the history, so
        that a clock which is wrong is no harm, unless it is set between heartbeat() and report()."""
        for beat in heartbeats:
            _want("heartbeat", beat, dict, "one as heartbeat() makes it")
        results: List[Optional[Json]] = [None] * len(heartbeats)
        deadline, wait = time.monotonic() + self._patience, _Backoff()
        left = list(range(len(heartbeats)))
        dated: Optional[list[Json]] = None
        while left:
            part = _first(heartbeats, left, self._room)
            size = sum(_size(heartbeats[i]) for i in part)
            try:
                dated = dated or self._dated(heartbeats)
                began = time.monotonic()
                answers = self._post([dated[i] for i in part], queued=queued, more=size / SLOWEST if len(part) == 1 else 0)
            except Exception as error:
                large = isinstance(error, Error) and error.status == 413
                guilty = isinstance(error, Error) and error.status in (400, 413, 422) and "detail" in error.problem  # else a proxy said it
                if guilty and len(part) == 1:
                    results[part[0]] = {"status": "invalid", "error": (error.problem.get("errors") or [{"reason": str(error)}])[0]}
                    left.remove(part[0])
                    self._room = ROOM
                    continue
                if guilty or large or not isinstance(error, Error):  # without an answer the link may be too slow for as much
                    self._room = size // 2
                if not guilty and not (large and len(part) > 1) and not wait.until(deadline, error):
                    raise self._unsent(heartbeats, results, dated, error) from error
                continue
            if time.monotonic() - began <= self._timeout / 4:
                self._room = min(max(self._room, 2 * size), MAX_BYTES)
            for i, answer in zip(part, answers):
                left.remove(i)
                if answer["status"] == "unavailable":
                    left.append(i)
                else:
                    results[i] = answer
            if all(results[i] for i in part):
                wait.reset()
            elif not wait.until(deadline, None):
                raise self._unsent(heartbeats, results, dated, "the history is unavailable")
        return results  # type: ignore[return-value] # each has one

    def _unsent(self, heartbeats: tuple[Json, ...], results: List[Optional[Json]], dated: Optional[list[Json]], cause: object) -> Unsent:
        left = [i for i, result in enumerate(results) if result is None]
        for i in left if dated and not self._recorded else ():
            made, at = _moment(heartbeats[i].get("event_time")), _moment(dated[i].get("event_time"))
            if made is not None and at is not None:
                self._kept[made] = at
        for made in list(self._kept)[:-MAX_KEPT]:
            self._kept.pop(made, None)  # another thread may have
        return Unsent([heartbeats[i] for i in left], results, cause)

    def _post(self, heartbeats: List[Json], *, queued: bool = False, more: float = 0) -> List[Json]:
        """One message, which may take so many seconds more than others. Its answer tells the time."""
        body: Json = {"heartbeats": heartbeats}
        if self._offset is None and not self._recorded:
            body["sent_at"] = _time(datetime.now(timezone.utc))
        if queued:
            body["ack"] = "queued"
        sent = time.monotonic()
        answer = self._once("POST", "/v1/heartbeats", body, more=more)
        if not isinstance(answer, dict) or len(answer.get("results") or []) != len(heartbeats):
            raise ValueError("that was not the edge")
        if answer.get("now_ms"):
            now, came = answer["now_ms"] / 1000, time.monotonic()
            if self._offset is None:
                self._offset, self._zero = now - came, time.time() - came
            # Never ahead, and behind by no more than the quickest answer was on its way back.
            self._offset = min(max(self._offset, now - came), now - sent)
        return answer.get("results") or []

    def _dated(self, heartbeats: tuple[Json, ...]) -> List[Json]:
        """Gives heartbeats the times of the history. A request of nothing asks for that, also
        when the clock was set or the machine has slept. An edge that does not say corrects
        them by when they are sent."""
        if self._recorded:
            return list(heartbeats)
        if self._offset is None or abs(time.time() - time.monotonic() - self._zero) > 1:
            self._offset = None
            self._post([])
        if self._offset is None:
            return list(heartbeats)
        by = timedelta(seconds=self._offset - (time.time() - time.monotonic()))
        return [self._date(beat, by) for beat in heartbeats]

    def _date(self, beat: Json, by: timedelta) -> Json:
        """One that was made after the last one is at least a millisecond later, also where less was between. One that
        was not sent keeps its time: it may be later than those that were sent by as much."""
        made = _moment(beat.get("event_time"))
        if made is None:
            return beat  # the edge refuses what is no time
        try:
            at = made + by
            at += timedelta(microseconds=-at.microsecond % 1000)
            if made in self._kept:
                at = self._kept[made]
            elif made >= self._last[0]:
                if made > self._last[0]:
                    at = max(at, self._last[1] + timedelta(milliseconds=1))
                self._last = (made, at)
            began = _moment(beat.get("started_at"))
            started = {} if began is None else {"started_at": _time(began + (at - made))}
        except OverflowError:
            return beat
        return {**beat, **started, "event_time": _time(at)}

    # Where the user stopped.

    def point(self, type: int, id: str) -> Optional[Json]:
        """The record of one object, or None."""
        return self._of(type, id)

    def viewings(self, type: int, id: str) -> List[Json]:
        """The newest 128 sessions of one object, newest first; none where there is no record."""
        found = self._of(type, id, "/viewings")
        return found["items"] if found else []

    def _of(self, type: int, id: str, what: str = "") -> Optional[Json]:
        _object((type, id))
        if id in (".", ".."):  # steps of an address
            return self.lookup((type, id))[0] if not what else None
        try:
            return self._read("GET", f"/v1/history/{type}/{urllib.parse.quote(id, safe='')}{what}")
        except Error as error:
            if error.status == 404:
                return None
            raise

    def lookup(self, *objects: Object) -> List[Optional[Json]]:
        """The records of any number of objects, None where there is none, in order."""
        found: List[Optional[Json]] = []
        for at in range(0, len(objects), 100):
            items = self._read("POST", "/v1/history/lookup", {"objects": _objects(objects[at : at + 100])})["items"]
            found += [item.get("record") for item in items]
        return found

    def list(self, *, type: Optional[int] = None, since: Optional[Time] = None, until: Optional[Time] = None) -> Iterator[Json]:
        """All records, newest first, read page by page. What is played meanwhile comes last, if it has not come before."""
        _want("type", type, int, "a whole number")
        return self._walk("/v1/history", type=type, since=_time(since), until=_time(until))

    def search(self, text: str, *, type: Optional[int] = None) -> Iterator[Json]:
        """Records with all words of ``text`` in id or metadata, newest first."""
        _want("type", type, int, "a whole number")
        if not isinstance(text, str):
            raise TypeError(f"search {text!r}: want a text")
        return self._walk("/v1/history/search", q=text, type=type)

    def stats(
        self, *, by: Optional[str] = None, since: Optional[Time] = None, until: Optional[Time] = None, zone: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> Json:
        """Time watched, plays and viewings in ``buckets`` and in ``total``: by ``day`` of a zone such as Europe/Berlin,
        by ``type``, or by ``object``, most watched first and ``limit`` at most. By day there is a ``streak`` too."""
        for name, value in (("by", by), ("zone", zone)):
            _want(name, value, str, "a text")
        _want("limit", limit, int, "a whole number")
        return self._read("GET", "/v1/stats", by=by, since=_time(since), until=_time(until), zone=zone, limit=limit)

    def _walk(self, path: str, **query: Any) -> Iterator[Json]:
        cursor = None
        told = set()
        while True:
            page = self._read("GET", path, limit=100, cursor=cursor, **query)
            for record in page["items"]:
                name = (record["object"]["type"], record["object"]["id"])
                if name not in told:
                    told.add(name)
                    yield record
            if not page["has_more"]:
                return
            cursor = page["cursor"]

    def changes(self, since: Optional[str] = None) -> Json:
        """All changes, as ``items`` and ``removed``, since the ``token`` of the answer before; with the next
        ``token`` and the ``settings``. Where it says ``resync``, as it does without ``since``: read ``history()``, and then
        what has changed since that token."""
        _want("since", since, str, "the token of the changes before")
        told: dict[tuple[int, str], tuple[Json, bool]] = {}
        while True:
            page = self._read("GET", "/v1/changes", since=since or None)
            for record in page["items"]:
                told[record["object"]["type"], record["object"]["id"]] = (record, False)
            for gone in page["removed"]:
                told[gone["type"], gone["id"]] = (gone, True)
            if page["resync"] or not page["has_more"]:
                break
            since = page["token"]
        if page["resync"]:
            told = {}
        items, removed = ([one for one, gone in told.values() if gone is wanted] for wanted in (False, True))
        return {"items": items, "removed": removed, **{name: page[name] for name in ("resync", "token", "settings")}}

    def continue_watching(self, *, limit: int = 20, type: Optional[int] = None) -> List[Json]:
        """Records that are begun and not finished, newest first, and of each series one part."""
        for name, value in (("limit", limit), ("type", type)):
            _want(name, value, int, "a whole number")
        return self._read("GET", "/v1/continue", limit=limit, type=type)["items"]

    def follow(self) -> Iterator[Json]:
        """What others change, as it happens: each a dict of ``items``, ``removed`` and ``resync``. At a
        ``resync``, which comes first on each connection, read again what is shown. It connects
        again after a lost connection, and raises Error where it is refused."""
        wait = _Backoff()
        while True:
            try:
                for change in self._pushes():
                    wait.reset()
                    yield change
            except (Error, OSError, http.client.HTTPException, ValueError) as error:
                if not wait.until(float("inf"), _failed(error) if isinstance(error, Error) else error):
                    raise _failed(error) from error

    def _pushes(self) -> Iterator[Json]:
        """The changes of one WebSocket."""
        where = urllib.parse.urlsplit(self._url)
        make = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        with contextlib.closing(make(where.hostname or "", where.port, timeout=self._timeout)) as connection:
            connection.request("GET", where.path + "/v1/stream?push=true", headers={
                **self._headers(), "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(), "Sec-WebSocket-Protocol": "playhead.v1.json",
            })
            answer = connection.getresponse()
            if answer.status != 101:
                raise _problem(answer)
            connection.sock.settimeout(SILENCE)
            text, seq = b"", 0
            while True:
                last, kind, data = _frame(answer.fp)
                if kind == _CLOSE:
                    after = re.search(rb"retry_after_ms=(\d+)$", data)
                    raise Error(503, {"detail": f"closed: {data[2:].decode()}", "retry_after": int(after[1]) / 1000 if after else 0})
                if kind == _PING:
                    seq += 1
                    alive = json.dumps({"seq": seq, "heartbeats": []}).encode()  # or it would end after 30 minutes
                    connection.sock.sendall(_masked(_PONG, data) + _masked(_TEXT, alive))
                if kind in (_TEXT, _MORE):
                    text += data
                if kind in (_TEXT, _MORE) and last:
                    push, text = json.loads(text).get("push"), b""
                    if push:
                        yield {"items": push.get("items", []), "removed": push.get("removed", []), "resync": push.get("resync", False)}

    # Decisions of the user.

    def delete(self, *objects: Object) -> int:
        """Removes objects; returns how many of them there were."""
        removed = 0
        for at in range(0, len(objects), 1000):
            removed += self._decide("POST", "/v1/history/delete", {"objects": _objects(objects[at : at + 1000])})["deleted"]
        return removed

    def clear(self, *, until: Optional[Time] = None, type: Optional[int] = None) -> None:
        """Removes everything up to a time, by default now; also what devices still come with."""
        _want("type", type, int, "a whole number")
        send = self._decide if until is None else self._read
        send("DELETE", "/v1/history", until=_time(until), type=type)

    def recording(self, on: Optional[bool] = None) -> bool:
        """Whether what is played is kept; with an argument, switches that."""
        _want("recording", on, bool, "True or False")
        if on is None:
            return self._read("GET", "/v1/settings")["recording"]
        return self._decide("PUT", "/v1/settings", {"recording": on})["recording"]

    def dismiss(self, *objects: Object, dismissed: bool = True) -> int:
        """Takes objects out of ``continue_watching`` until they are played again; with
        ``dismissed=False`` takes that back. Returns how many of them had a record."""
        _want("dismissed", dismissed, bool, "True or False")
        found = 0
        for at in range(0, len(objects), 1000):
            part = {"objects": _objects(objects[at : at + 1000]), "dismissed": dismissed}
            found += self._decide("POST", "/v1/continue/dismiss", part)["found"]
        return found

    def mark(
        self, mark: str, *objects: Object, at: Optional[Time] = None, only_recorded: bool = False, unless_completed: bool = False,
        meta: Sequence[Mapping[str, str]] = (),
    ) -> List[Json]:
        """Marks objects as ``watched`` or ``unwatched``, or puts them back to the start with ``reset``,
        which keeps their plays. Returns what became of each, as ``report`` does; ``at`` is when the
        user said so, by default now. ``only_recorded`` leaves out what is not in the history, of
        which ``watched`` makes a record otherwise; ``unless_completed`` leaves what has been completed as
        it is. ``meta`` has the metadata of each object, or nothing."""
        if mark not in MARKS:
            raise TypeError(f"mark {mark!r}: want one of {', '.join(MARKS)}")
        if meta and len(meta) != len(objects):
            raise ValueError(f"meta of {len(meta)} objects, of {len(objects)}")
        results: List[Json] = []
        for i in range(0, len(objects), 1000):
            part = _objects(objects[i : i + 1000])
            for one, own in zip(part, meta[i : i + 1000]):
                one["meta"] = dict(own)
            body: Json = {"objects": part, "mark": mark}
            if at is not None:
                body["event_time"] = _time(at)
            if only_recorded:
                body["only_recorded"] = True
            if unless_completed:
                body["unless_completed"] = True
            send = self._decide if at is None else self._read
            results += send("POST", "/v1/history/mark", body)["results"]
        return results

    # Backups.

    def export(self) -> Iterator[bytes]:
        """All of the history as lines of NDJSON, each with all of a record: see docs/retention.md.
        Raises Error when it breaks off: then the lines so far are no backup."""
        try:
            found = self._open("GET", "/v1/export", send=_patient.open)
        except (OSError, http.client.HTTPException) as error:
            raise _failed(error) from error
        with found as answer:
            rest = b""
            try:
                while part := answer.read(1 << 16):  # its readline takes an answer that breaks off between two chunks for a whole one
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        yield line + b"\n"
            except (OSError, http.client.HTTPException) as error:
                raise Error(0, {"detail": f"the export broke off: {error}"}) from error
            if rest or not answer.chunked and answer.length != 0:  # as where it broke off within the headers
                raise Error(0, {"detail": "the export broke off"})

    def import_lines(self, lines: Iterable[bytes], *, restore: bool = False) -> Json:
        """Folds exported lines in, which counts once however often it is done. With ``restore`` what
        was removed later comes back. Returns how many lines there were, by status, and the
        first that were refused."""
        if isinstance(lines, (str, bytes)):
            raise TypeError("import_lines: want a list of lines")
        total: Json = {"rows": 0, "statuses": {}, "refused": []}
        before = 0  # lines, of which empty ones are no rows
        rest, left = iter(lines), []  # left are lines that were read and not answered
        room = most = MAX_IMPORT
        deadline, wait = time.monotonic() + self._patience, _Backoff()
        while True:
            part, size = _fill(left, rest, room)
            if not part:
                return total
            began = time.monotonic()
            try:
                more = size / SLOWEST if len(part) == 1 else 0
                answer = self._once("POST", "/v1/import", b"".join(part), more=more, restore="true" if restore else None)
            except Exception as error:
                large = isinstance(error, Error) and error.status == 413 and len(part) > 1  # for a proxy
                slow = time.monotonic() - began >= self._timeout and len(part) > 1 and time.monotonic() < deadline
                if large or not isinstance(error, Error):  # without an answer the link may be too slow for as much
                    room = size // 2
                    most = room if large else most
                if not large and not slow and not wait.until(deadline, error):
                    raise _failed(error) from error
                continue
            if time.monotonic() - began <= self._timeout / 4:
                room = min(max(room, 2 * size), most)
            deadline, wait = time.monotonic() + self._patience, _Backoff()
            for row in answer["refused"]:
                total["refused"].append({**row, "line": row["line"] + before})
            del left[: len(part)]
            before += len(part)
            total["rows"] += answer["rows"]
            for status, n in answer["statuses"].items():
                total["statuses"][status] = total["statuses"].get(status, 0) + n

    # Requests.

    def _read(self, method: str, path: str, body: Union[Json, bytes, None] = None, **query: Any) -> Json:
        """One request, sent again while the edge is away or busy: all of these may be repeated."""
        deadline, wait = time.monotonic() + self._timeout, _Backoff()
        while True:
            try:
                return self._once(method, path, body, more=deadline - time.monotonic() - self._timeout, **query)
            except (Error, OSError, http.client.HTTPException, ValueError) as error:
                if not wait.until(deadline, error):
                    raise _failed(error) from error

    def _decide(self, method: str, path: str, body: Optional[Json] = None, **query: Any) -> Json:
        """A decision as of now, sent again only where the edge has not taken it. One whose answer was lost may have been
        carried out: again it would be as of a later now, and take what other devices have reported since."""
        deadline, wait = time.monotonic() + self._timeout, _Backoff()
        while True:
            try:
                return self._once(method, path, body, more=deadline - time.monotonic() - self._timeout, **query)
            except (Error, OSError, http.client.HTTPException, ValueError) as error:
                untaken = error.status == 429 if isinstance(error, Error) else _unreached(error)
                if not untaken or not wait.until(deadline, error):
                    raise _failed(error) from error

    def _once(self, method: str, path: str, body: Union[Json, bytes, None] = None, *, more: float = 0, **query: Any) -> Json:
        with self._open(method, path, body, more=more, **query) as answer:
            return json.load(answer)

    def _headers(self) -> dict[str, str]:
        token = self._token if isinstance(self._token, str) else self._token()
        return {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    def _open(
        self, method: str, path: str, body: Union[Json, bytes, None] = None, *,
        more: float = 0, send: Optional[Callable[..., Any]] = None, **query: Any,
    ) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        url = self._url + path + ("?" + urllib.parse.urlencode(given) if given else "")
        headers = self._headers()
        data = body
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/x-ndjson"
        elif body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            return (send or _opener.open)(request, timeout=self._timeout + more)
        except urllib.error.HTTPError as error:
            with error:
                raise _problem(error) from None


_NOT_READY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Bounded(http.client.HTTPConnection):
    """A connection whose timeout bounds all that is done over it, and not each step."""

    def __init__(self, host: str, *, timeout: float, **more: Any):
        super().__init__(host, timeout=timeout, **more)
        self._end = time.monotonic() + timeout
        self._create_connection = self._dial
        self._early = bytearray()  # of an answer that came before all was sent
        self.response_class = functools.partial(_Answer, left=self._left, early=self._early)  # type: ignore[assignment]

    def _left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def _dial(self, address: tuple[str, int], timeout: object, source: Any) -> socket.socket:
        """Tries the addresses of the host, as socket.create_connection does, but all in the time that is left."""
        failed: OSError = OSError(f"{address[0]} has no address")
        for *_, found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            try:
                sock = socket.create_connection(found[:2], self._left(), source)
                sock.settimeout(self._left())  # of the handshake
                return sock
            except OSError as error:
                failed = error
        raise failed

    def send(self, data: Any) -> None:
        if self.sock is None:
            super().send(data)  # connects first
            return
        try:
            self._push(memoryview(data))
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            pass  # an edge that is busy answers before it has read all, and closes: if it has not, reading fails as well

    def _push(self, data: memoryview) -> None:
        """Sends until all is sent or an answer comes: an edge that is busy may read no more, and not close either."""
        self.sock.setblocking(False)
        with selectors.DefaultSelector() as ready:
            ready.register(self.sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while data:
                try:
                    data = data[self.sock.send(data[:PIECE]) :]
                    continue
                except _NOT_READY:
                    found = ready.select(self._left())
                if any(events & selectors.EVENT_READ for _, events in found):
                    try:
                        self._early += self.sock.recv(PIECE)
                        return
                    except _NOT_READY:
                        pass  # TLS has messages of its own


class _BoundedTLS(_Bounded, http.client.HTTPSConnection):
    pass


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, left: Callable[[], float], early: bytearray, **more: Any):
        super().__init__(sock, *args, **more)
        self.fp = io.BufferedReader(_Reads(self.fp.detach(), sock, left, early))  # type: ignore[attr-defined]


class _Reads(io.RawIOBase):
    """Reads what came early, and then from a socket, each time for as long as is left."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, left: Callable[[], float], early: bytearray):
        self._raw, self._sock, self._left, self._early = raw, sock, left, early

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        if self._early:
            n = min(len(buffer), len(self._early))
            buffer[:n] = self._early[:n]
            del self._early[:n]
            return n
        self._sock.settimeout(self._left())
        return self._raw.readinto(buffer)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._raw.close()
        super().close()


_MORE, _TEXT, _CLOSE, _PING, _PONG = 0, 1, 8, 9, 10  # kinds of frames of a WebSocket


def _frame(reader: Any) -> tuple[bool, int, bytes]:
    """A frame: whether it is the last of its message, its kind and its data."""

    def exactly(n: int) -> bytes:
        data = reader.read(n)
        if len(data) < n:
            raise ConnectionResetError("the connection ended")
        return data

    first, size = exactly(2)
    if size > 125:  # else the size itself
        size = int.from_bytes(exactly(2 if size == 126 else 8), "big")
    return bool(first & 128), first & 15, exactly(size)


def _masked(kind: int, data: bytes) -> bytes:
    """A short frame as clients send it."""
    mask = os.urandom(4)
    return bytes([128 | kind, 128 | len(data)]) + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))


class _Stays(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: the token is for the edge alone, and what another server answers is not about the history."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _HTTP(urllib.request.HTTPHandler):
    def http_open(self, request: Any) -> Any:
        return self.do_open(_Bounded, request)  # type: ignore[arg-type]


class _HTTPS(urllib.request.HTTPSHandler):
    def https_open(self, request: Any) -> Any:
        return self.do_open(_BoundedTLS, request, context=self._context)  # type: ignore[attr-defined, arg-type]


_opener = urllib.request.build_opener(_HTTP, _HTTPS, _Stays)
_patient = urllib.request.build_opener(_Stays)  # its timeout bounds each step


def _problem(answer: Any) -> Error:
    try:
        problem = json.load(answer)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    problem["retry_after"] = answer.headers.get("Retry-After")
    return Error(answer.code, problem)


def _passing(status: int) -> bool:
    """Whether the same request may be answered otherwise in a moment."""
    return status in (408, 429, 500, 502, 503, 504)


def _unreached(error: Exception) -> bool:
    """Whether there was no connection over which a request could have been sent."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(reason, (ConnectionRefusedError, socket.gaierror))


class _Backoff:
    """Waits between attempts: as long as the edge says, or else longer and longer."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._next = 0.5

    def until(self, deadline: float, error: Optional[Exception]) -> bool:
        """Waits before another attempt, and returns False where that would be too late or no use."""
        if error is not None and not isinstance(error, (Error, OSError, http.client.HTTPException, ValueError)):
            return False
        if isinstance(error, Error) and not _passing(error.status):
            return False
        away = not isinstance(error, Error) if error else False
        away = away or isinstance(error, Error) and error.status in (502, 503, 504)
        wait = random.uniform(0.5, 1) * (min(self._next, SOON) if away else self._next)
        if isinstance(error, Error):
            try:
                wait = max(wait, float(error.problem.get("retry_after") or 0))
            except ValueError:
                pass  # a date, which the edge does not send
        self._next = min(2 * self._next, 30.0)
        if time.monotonic() + wait > deadline:
            return False
        time.sleep(wait)
        return True


_BEGINNING = datetime.min.replace(tzinfo=timezone.utc)


def _time(at: Optional[Time], digits: str = "milliseconds") -> Optional[str]:
    _want("time", at, (datetime, str), "a datetime, or a text such as 2026-11-20T18:00:15Z")
    if not isinstance(at, datetime):
        return at
    if at.tzinfo is None:
        raise ValueError(f"{at}: a time needs a zone, as in datetime.now(timezone.utc)")
    return at.astimezone(timezone.utc).isoformat(timespec=digits).replace("+00:00", "Z")


def _want(name: str, value: Any, of: Any, what: str) -> None:
    """Raises for a value that is neither None nor of the type."""
    if value is not None and not isinstance(value, of):
        raise TypeError(f"{name} {value!r}: want {what}")


def _objects(objects: Iterable[Object]) -> list[Json]:
    return [_object(one) for one in objects]


def _object(one: Object) -> Json:
    if not isinstance(one, (tuple, list)) or len(one) != 2 or not isinstance(one[0], int) or not isinstance(one[1], str):
        raise TypeError(f"object {one!r}: want a type and an id, such as (1, '100')")
    return {"type": one[0], "id": one[1]}


def _moment(text: Any) -> Optional[datetime]:
    """The moment of a time as the API writes it, None for anything else."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", text) if isinstance(text, str) else None
    if not found:
        return None
    whole, part, zone = found.groups()
    try:
        at = datetime.fromisoformat(whole.upper() + ("+00:00" if zone in "Zz" else zone))
        return (at + timedelta(seconds=float(part or 0))).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def _size(beat: Json) -> int:
    return len(json.dumps(beat)) + 2


def _first(heartbeats: tuple[Json, ...], left: list[int], room: int) -> list[int]:
    """The first of those that are left which one request may have, and one at least."""
    part: list[int] = []
    for i in left[:MAX_HEARTBEATS]:
        room -= _size(heartbeats[i])
        if part and room < 0:
            break
        part.append(i)
    return part


def _fill(left: list[bytes], rest: Iterator[bytes], room: int) -> tuple[list[bytes], int]:
    """The first lines that one body may have, one at least, and their bytes. ``left`` is filled up for that."""
    size = n = 0
    while True:
        if n == len(left):
            line = next(rest, None)
            if line is None:
                break
            left.append(line.rstrip(b"\r\n") + b"\n")
        if n and size + len(left[n]) > room:
            break
        size += len(left[n])
        n += 1
    return left[:n], size
