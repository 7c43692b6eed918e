"""Tests against a running Playhead, and against an edge that fails:

    PLAYHEAD_URL=http://127.0.0.1:8080 PLAYHEAD_SECRET_FILE=secret python3 -m unittest discover client/python

pytest runs them as well. The secret is that of --token-secret-file; each test has a user of its own.
"""

import base64
import hashlib
import hmac
import http.client
import io
import json
import os
import secrets
import socket
import ssl
import threading
import time
import unittest
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

import playhead
from playhead import Client, Error, Unsent, heartbeat

missing = [name for name in ("PLAYHEAD_URL", "PLAYHEAD_SECRET_FILE") if not os.environ.get(name)]
if missing:
    raise RuntimeError(f"{' and '.join(missing)}: not set. They say which Playhead is tested: {__doc__.splitlines()[2].strip()}")
URL = os.environ["PLAYHEAD_URL"]
with open(os.environ["PLAYHEAD_SECRET_FILE"], "rb") as file:
    SECRET = file.read().strip()


def token(user):
    """A token as a backend gives it to its user."""

    def encode(raw):
        return base64.urlsafe_b64encode(raw).rstrip(b"=")

    claims = {"sub": user, "exp": int(time.time()) + 3600}
    signed = encode(b'{"alg":"HS256"}') + b"." + encode(json.dumps(claims).encode())
    return (signed + b"." + encode(hmac.new(SECRET, signed, hashlib.sha256).digest())).decode()


def ago(**how):
    return datetime.now(timezone.utc) - timedelta(**how)


class AgainstPlayhead(unittest.TestCase):
    def setUp(self):
        name = secrets.token_hex(8)
        self.user = Client(URL, lambda: token(name))

    def test_changes(self):
        first = self.user.changes()
        self.assertTrue(first["resync"] and first["settings"]["recording"])
        self.assertTrue(self.user.changes("")["resync"])  # as of an app that has kept no token yet
        self.user.report(*(heartbeat(1, str(n), "stop", 61000, session="s") for n in range(150)))
        self.user.delete((1, "7"))
        told = self.user.changes(first["token"])
        self.assertFalse(told["resync"])
        self.assertEqual(len({r["object"]["id"] for r in told["items"]} - {"7"}), 149)
        self.assertEqual(told["removed"], [{"id": "7", "type": 1}])
        self.user.clear()
        self.assertTrue(self.user.changes(told["token"])["resync"])
        with self.assertRaises(Error) as refused:
            self.user.changes("nonsense")
        self.assertEqual(refused.exception.status, 422)

    def test_report_and_read(self):
        begun = heartbeat(1, "a:b", "stop", 61000, duration_ms=5400000, session="s", device="tv", meta={"title": "Low Tide", "series": None})
        done = heartbeat(2, "2", "finish", 5400000, duration_ms=5400000, session="t")
        results = self.user.report(begun, done, {**begun, "object": {"type": 0, "id": "x"}}, begun)
        self.assertEqual([r["status"] for r in results], ["stored", "stored", "invalid", "unchanged"])
        self.assertIn("type", json.dumps(results[2]["error"]))
        record = self.user.point(1, "a:b")
        self.assertEqual((record["resume_ms"], record["meta"]["title"]), (61000, "Low Tide"))
        self.assertIsNone(self.user.point(1, "none"))
        first, none = self.user.lookup((2, "2"), (1, "none"))
        self.assertEqual((first["resume_ms"], first["plays"], none), (0, 1, None))
        self.user.report(heartbeat(1, "begun", "stop", 1000000, duration_ms=5400000))
        self.assertEqual([r["object"]["id"] for r in self.user.continue_watching()], ["begun"])
        self.assertEqual(self.user.dismiss((1, "begun"), (1, "none")), 1)
        self.assertEqual(self.user.continue_watching(), [])
        self.assertIn("dismissed_at", self.user.point(1, "begun"))
        self.assertEqual(self.user.dismiss((1, "begun"), dismissed=False), 1)
        self.assertEqual([r["object"]["id"] for r in self.user.continue_watching()], ["begun"])

    def test_viewings(self):
        for at, kind, position, session in ((50, "start", 0, "a"), (40, "stop", 600000, "a"), (30, "start", 590_000, "b"), (20, "stop", 5300000, "b")):
            self.user.report(heartbeat(1, "a:b", kind, position, duration_ms=5400000, session=session, device=f"of {session}", at=ago(minutes=at)))
        slip, first = self.user.viewings(1, "a:b")
        self.assertEqual((slip["from_ms"], slip["to_ms"], slip["device"]), (590000, 5300000, "of b"))
        self.assertEqual((first["from_ms"], first["to_ms"], first["state"]), (0, 600000, "stopped"))
        self.assertEqual(self.user.viewings(1, "none"), [])

    def test_stats(self):
        self.user.report(heartbeat(1, "film", "finish", 5400000, duration_ms=5400000, session="a", at=ago(minutes=9)))
        by_day = self.user.stats(since=ago(minutes=10), until=ago(minutes=0), zone="Asia/Kolkata")
        self.assertEqual((by_day["total"]["plays"], by_day["streak"]["longest_days"], len(by_day["buckets"])), (1, 1, 1))
        (most,) = self.user.stats(by="object", limit=1)["buckets"]
        self.assertEqual((most["object"]["id"], most["viewings"]), ("film", 1))
        with self.assertRaises(Error) as caught:
            self.user.stats(zone="Europe/Atlantis")
        self.assertEqual(caught.exception.code, "invalid")

    def test_marks(self):
        self.user.report(heartbeat(1, "film", "stop", 1000000, duration_ms=5400000, at=ago(minutes=9)))
        watched, new = self.user.mark("watched", (1, "film"), (1, "elsewhere"))
        self.assertEqual((watched["status"], watched["record"]["completed"], watched["record"]["plays"], new["status"]), ("stored", True, 1, "stored"))
        self.assertEqual(self.user.mark("watched", (1, "film"))[0]["status"], "unchanged")
        self.assertEqual(self.user.mark("reset", (1, "film"), at=ago(minutes=5))[0]["status"], "stale")
        unwatched, none = self.user.mark("unwatched", (1, "film"), (1, "none"))
        self.assertEqual((unwatched["record"]["plays"], unwatched["record"]["resume_ms"], none), (0, 0, {"status": "unchanged"}))
        film, none = self.user.mark("watched", (1, "film"), (1, "none"), only_recorded=True)
        self.assertEqual((film["record"]["plays"], none), (1, {"status": "unchanged"}))
        season = [(2, f"e{i}") for i in range(3)]
        meta = [{"title": f"Episode {i}", "series": "Fog", "season": "1", "episode": str(i)} for i in range(3)]
        for want in ("stored", "unchanged", "unchanged"):
            marked = self.user.mark("watched", *season, unless_completed=True, meta=meta)
            self.assertEqual([(r["status"], r["record"]["plays"], r["record"]["meta"]) for r in marked], [(want, 1, m) for m in meta])
        self.assertEqual([r.get("next") for r in self.user.continue_watching()], [{"season": 1, "episode": 3}])
        with self.assertRaises(ValueError):
            self.user.mark("watched", *season, meta=meta[:1])

    def test_many(self):
        begun = ago(seconds=3000)
        beats = [heartbeat(1, str(i), "stop", 1000 * (i + 1), at=begun + timedelta(seconds=i), meta={"text": "x" * 900}) for i in range(2500)]
        # "unchanged" is what a request gets that was sent again, because its answer was late.
        self.assertLessEqual({r["status"] for r in self.user.report(*beats)}, {"stored", "unchanged"})
        self.assertEqual([r["object"]["id"] for r in self.user.list()], [str(i) for i in reversed(range(2500))])
        some = list(self.user.list(since=begun + timedelta(seconds=2400.5), until=begun + timedelta(seconds=2490.5)))
        self.assertEqual(len(some), 90)
        self.assertEqual(self.user.delete((1, "1"), (1, "2"), (1, "none")), 2)
        self.assertEqual(sum(1 for _ in self.user.list()), 2498)

    def test_backup(self):
        for played in (10.0, 5400.0):
            self.user.report(heartbeat(1, "film", "stop", 1000 * played, duration_ms=5400000, session="s"))
        self.user.report(heartbeat(1, "other", "stop", 5000))
        before = {r["object"]["id"]: r for r in self.user.list()}
        lines = list(self.user.export())
        self.user.clear()
        refused = self.user.import_lines(lines)
        self.assertEqual(refused["statuses"], {"cleared": 2})
        back = self.user.import_lines(lines + [b"{}\n"], restore=True)
        self.assertEqual((back["rows"], back["statuses"]), (3, {"stored": 2, "invalid": 1}))
        self.assertEqual([row["line"] for row in back["refused"]], [3])
        after = {r["object"]["id"]: r for r in self.user.list()}
        self.assertEqual(set(after), set(before))
        for id, record in after.items():
            for field in ("resume_ms", "furthest_ms", "plays"):
                self.assertEqual(record[field], before[id][field], (id, field))

    def test_lines_that_are_refused(self):
        """They are told by where they are in all that was sent, in however many requests; empty ones are lines and no rows."""
        with mock.patch.object(playhead, "MAX_IMPORT", 10):
            report = self.user.import_lines([b"\n", b"x\n", b"\n", b"y" * 20, b"z"])
        self.assertEqual((report["rows"], [row["line"] for row in report["refused"]]), (3, [2, 4, 5]))

    def test_recording(self):
        self.assertFalse(self.user.recording(False))
        # A time in the future passes for now, which is after the pause, however slow the answers are.
        soon = datetime.now(timezone.utc) + timedelta(seconds=30)
        self.assertEqual(self.user.report(heartbeat(1, "1", "stop", 5000, at=soon))[0]["status"], "paused")
        self.assertTrue(self.user.recording(True))
        self.assertTrue(self.user.recording())

    def test_errors(self):
        with self.assertRaises(Error) as raised:
            Client(URL, "none").continue_watching()
        self.assertEqual(raised.exception.status, 401)
        with self.assertRaises(Unsent) as unsent:
            Client(URL, "none").report(heartbeat(1, "1", "stop", 5000))
        self.assertEqual(len(unsent.exception.heartbeats), 1)
        with self.assertRaises(ValueError):
            heartbeat(1, "1", "stop", 5000, at=datetime(2026, 1, 1))


class Edge(BaseHTTPRequestHandler):
    """Answers with the next of its answers: a status, headers, and results of heartbeats."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, headers, results = 200, {}, []
        if body["heartbeats"]:  # else it asks for the time
            self.server.got.append(len(body["heartbeats"]))
            status, headers, results = self.server.answers.pop(0)(body["heartbeats"])
        self.server.sent_at.append(body.get("sent_at"))
        now = round(time.time() * 1000) + self.server.ahead if self.server.tells else None
        text = json.dumps({"results": results, "now_ms": now} if status == 200 else {"status": status, "detail": "no"}).encode()
        if self.server.proxy and status != 200:
            text = b"<html>"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        try:
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            pass  # nobody listens any more

    def log_message(self, *_):
        pass


def stored(beats):
    return 200, {}, [{"status": "stored"} for _ in beats]


class AgainstAFailingEdge(unittest.TestCase):
    def setUp(self):
        self.edge = ThreadingHTTPServer(("127.0.0.1", 0), Edge)
        self.edge.got, self.edge.sent_at, self.edge.ahead, self.edge.tells = [], [], 0, True
        self.edge.proxy = False  # says what fails
        threading.Thread(target=self.edge.serve_forever, daemon=True).start()
        self.addCleanup(self.edge.server_close)
        self.addCleanup(self.edge.shutdown)
        self.user = Client(f"http://127.0.0.1:{self.edge.server_address[1]}", "t", patience_s=20)
        self.beats = [heartbeat(1, str(i), "stop", 1000) for i in range(4)]

    def test_sent_again(self):
        def partly(beats):
            return 200, {}, [{"status": "stored"}] * 3 + [{"status": "unavailable"}]

        self.edge.answers = [lambda _: (503, {"Retry-After": "1"}, None), lambda _: (429, {}, None), partly, stored]
        self.assertEqual([r["status"] for r in self.user.report(*self.beats)], ["stored"] * 4)
        self.assertEqual(self.edge.got, [4, 4, 4, 1])

    def test_guilty(self):
        def refuse(beats):
            return (422, {}, None) if any(b["object"]["id"] == "2" for b in beats) else stored(beats)

        self.edge.answers = [refuse] * 5
        self.assertEqual([r["status"] for r in self.user.report(*self.beats)], ["stored", "stored", "invalid", "stored"])

    def test_refused_by_a_proxy(self):
        self.edge.proxy = True
        for status, asked in ((400, [4]), (422, [4]), (413, [4, 2, 1])):
            self.edge.got.clear()
            self.edge.answers = [lambda _, status=status: (status, {}, None)] * 3
            with self.assertRaises(Unsent) as raised:
                self.user.report(*self.beats)
            self.assertEqual(len(raised.exception.heartbeats), 4)
            self.assertEqual(self.edge.got, asked)

    def test_an_answer_of_another_server(self):
        for results in (None, [], {}, [{"status": "stored"}]):
            self.edge.answers = [lambda _, results=results: (200, {}, results)] + [stored] * 4
            self.assertEqual([r["status"] for r in self.user.report(*self.beats)], ["stored"] * 4)

    def test_sent_elsewhere(self):
        reached = []

        class Portal(BaseHTTPRequestHandler):
            def do_GET(self):
                reached.append(self.headers.get("Authorization"))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"resume_ms": 0}')

            do_POST = do_GET

            def log_message(self, *_):
                pass

        portal = ThreadingHTTPServer(("127.0.0.1", 0), Portal)
        threading.Thread(target=portal.serve_forever, daemon=True).start()
        self.addCleanup(portal.server_close)
        self.addCleanup(portal.shutdown)

        class Moved(Portal):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(302)
                self.send_header("Location", f"http://127.0.0.1:{portal.server_address[1]}/login")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_GET

        self.edge.RequestHandlerClass = Moved
        for call in (lambda: self.user.point(1, "1"), lambda: list(self.user.export())):
            with self.assertRaises(Error) as raised:
                call()
            self.assertEqual(raised.exception.status, 302)
        with self.assertRaises(Unsent):
            self.user.report(*self.beats)
        self.assertEqual(reached, [])

    def test_export_that_broke_off(self):
        lines = [b'{"version":1}\n', b'{"version":1,"user":"ann"}\n']
        body = b"".join(lines)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n%s\r\n\r\n"
        chunked = head % b"Transfer-Encoding: chunked" + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in lines) + b"0"
        user, answer = Client(self.user._url, "t", patience_s=0), b""

        class Proxy(BaseHTTPRequestHandler):
            def do_GET(self):
                self.wfile.write(answer)
                self.close_connection = True

            def log_message(self, *_):
                pass

        self.edge.RequestHandlerClass = Proxy
        for whole, rest in (chunked, b"\r\n\r\n"), (head % b"Content-Length: %d" % len(body) + body, b""):
            answer = whole + rest
            self.assertEqual(list(user.export()), lines)
            for end in range(len(whole)):
                answer = whole[:end]
                with self.assertRaises((Error, OSError, http.client.HTTPException), msg=f"cut at byte {end}: {answer[-30:]}"):
                    list(user.export())

    def test_unsent(self):
        self.edge.answers = [lambda beats: (200, {}, [{"status": "stored"}, {"status": "unavailable"}] * 2)] + [lambda _: (503, {"Retry-After": "60"}, None)] * 2
        with self.assertRaises(Unsent) as raised:
            self.user.report(*self.beats)
        self.assertEqual([b["object"]["id"] for b in raised.exception.heartbeats], ["1", "3"])
        self.assertEqual([r and r["status"] for r in raised.exception.results], ["stored", None, "stored", None])

    def test_wrong_clock(self):
        for ahead in (-10_000, 60_000, 5 * 3600_000):
            self.edge.ahead = ahead
            times = []

            def take(beats):
                times.extend(beats)
                return stored(beats)

            self.edge.answers, self.edge.sent_at = [take, lambda _: (503, {"Retry-After": "1"}, None), take], []
            user = Client(self.user._url, "t", patience_s=20)
            at = datetime.now(timezone.utc)
            old = heartbeat(1, "1", "stop", 2000, at="2026-03-01t20:15:00.5+01:00", started_at="2026-03-01T19:15:00Z")
            user.report(heartbeat(1, "1", "stop", 1000, at=at), old)
            user.report(heartbeat(1, "1", "stop", 3000))
            self.assertEqual(self.edge.sent_at[1:], [None] * 3)
            got = [datetime.fromisoformat(b["event_time"].replace("Z", "+00:00")) for b in times]
            self.assertLess(abs(got[0] - at - timedelta(milliseconds=ahead)), timedelta(seconds=3))
            self.assertLess(got[0], got[2])
            was = datetime(2026, 3, 1, 19, 15, 0, 500_000, timezone.utc)
            self.assertLess(abs(got[1] - was - timedelta(milliseconds=ahead)), timedelta(seconds=3))
            began = datetime.fromisoformat(times[1]["started_at"].replace("Z", "+00:00"))
            self.assertLess(abs(got[1] - began - timedelta(milliseconds=500)), timedelta(milliseconds=5))

    def test_order(self):
        """A report made later has a later time, however little is between, and one sent again has the same time."""
        times = []
        self.edge.answers = [lambda beats: times.append([b["event_time"] for b in beats]) or stored(beats)] * 3
        beats = [heartbeat(1, "1", "seek", 1000 * i) for i in range(5)]
        self.user.report(*beats[:3])
        self.user.report(*beats[3:])
        made = times[0] + times[1]
        self.assertEqual(made, sorted(made))
        self.assertEqual(len({b["event_time"] for b in beats}), len(set(made)))

    def test_order_of_the_unsent(self):
        """What was not sent is reported again after what was, also where all were made within a millisecond."""
        times = []

        def take(beats):
            times.extend((b["object"]["id"], b["event_time"]) for b in beats)
            return stored(beats)

        def half(beats):
            take(beats[:5])
            return 200, {}, [{"status": "stored"}] * 5 + [{"status": "unavailable"}] * 5

        at = datetime.now(timezone.utc).replace(microsecond=0)
        beats = [heartbeat(1, str(i), "seek", 1000 * i, at=at + timedelta(microseconds=i)) for i in range(10)]
        self.edge.answers = [half, lambda _: (401, {}, None), take]
        with self.assertRaises(Unsent) as raised:
            self.user.report(*beats)
        self.user.report(*raised.exception.heartbeats)
        self.assertEqual([id for id, _ in times], [str(i) for i in range(10)])
        made = [at for _, at in times]
        self.assertEqual(made, sorted(set(made)))

    def test_no_time_told(self):
        self.edge.tells, self.edge.answers = False, [stored]
        self.user.report(*self.beats)
        self.assertNotIn(None, self.edge.sent_at)

    def test_recorded(self):
        self.edge.ahead = 3600_000
        user = Client(self.user._url, "t", recorded=True)
        times = []
        self.edge.answers = [lambda beats: times.extend(b["event_time"] for b in beats) or stored(beats)] * 2
        for _ in range(2):
            user.report(heartbeat(1, "1", "stop", 1000, at="2026-03-01T20:15:00Z"))
        self.assertEqual((times, self.edge.sent_at), (["2026-03-01T20:15:00Z"] * 2, [None] * 2))

    def test_slow_link(self):
        """A message that does not get through in time is halved."""
        over = threading.Event()
        self.addCleanup(over.set)
        slow = Client(self.user._url, "t", timeout_s=1, patience_s=60)

        def carry(beats):
            if len(beats) > 20 and len(self.edge.got) < 4:
                over.wait(10)  # nobody listens any more
            return stored(beats)

        self.edge.answers = [carry] * 100
        beats = [heartbeat(1, str(i), "stop", 1000, meta={"text": "x" * 900}) for i in range(60)]
        self.assertEqual({r["status"] for r in slow.report(*beats)}, {"stored"})
        self.assertEqual(self.edge.got[:3], [60, 30, 15])

    def test_import_over_a_slow_link(self):
        """Lines that do not get through in time, or through a proxy, are halved; each is taken in once."""
        over = threading.Event()
        self.addCleanup(over.set)
        got, taken = [], []

        class Imports(Edge):
            def do_POST(self):
                lines = self.rfile.read(int(self.headers["Content-Length"])).splitlines()
                got.append(len(lines))
                if len(got) == 1:
                    over.wait(10)  # nobody listens any more
                refused = [{"line": i + 1} for i, line in enumerate(lines) if line.startswith(b"wrong")]
                large = len(lines) > 40
                if not large:
                    taken.extend(lines)
                text = b"<html>" if large else json.dumps({"rows": len(lines), "statuses": {"stored": len(lines)}, "refused": refused}).encode()
                self.send_response(413 if large else 200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                try:
                    self.wfile.write(text)
                except OSError:
                    pass

        self.edge.RequestHandlerClass = Imports
        slow = Client(self.user._url, "t", timeout_s=1, patience_s=20)
        lines = [b"x" * 999 + b"\n"] * 99 + [b"wrong".ljust(999) + b"\n"]
        report = slow.import_lines(iter(lines))
        self.assertEqual(got, [100, 50] + [25] * 4)
        self.assertEqual(taken, [line.rstrip(b"\n") for line in lines])
        self.assertEqual(report, {"rows": 100, "statuses": {"stored": 100}, "refused": [{"line": 100}]})

    def test_trickle(self):
        """An answer that comes byte by byte takes no longer than any other, whatever part of it does."""
        over = threading.Event()
        self.addCleanup(over.set)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        for first, part in ((head + b"X-Pad: ", b"x"), (head + b"Content-Length: 500\r\n\r\n", b" "), (b"HTTP/1.1 503 No\r\nContent-Length: 500\r\n\r\n", b" ")):
            listener = socket.create_server(("127.0.0.1", 0))
            self.addCleanup(listener.close)

            def trickle(listener=listener, first=first, part=part):
                try:
                    while True:
                        conn, _ = listener.accept()
                        with conn:
                            conn.recv(65536)
                            conn.sendall(first)
                            while not over.wait(0.3):
                                conn.sendall(part)
                except OSError:
                    pass  # nobody listens any more, or the test is over

            threading.Thread(target=trickle, daemon=True).start()
            slow = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "t", timeout_s=1, patience_s=0)
            for ask in (lambda: slow.report(*self.beats), lambda: slow.continue_watching()):
                ended = threading.Event()

                def call(ask=ask, ended=ended):
                    try:
                        ask()
                    except (OSError, Unsent, Error):
                        ended.set()

                threading.Thread(target=call, daemon=True).start()
                self.assertTrue(ended.wait(15), f"after {first!r}")

    def test_answered_early(self):
        """An edge that answers while a body is still being sent is heard, whether it closes or reads no more."""
        text = b"HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}"
        nothing, half = lambda conn, heard: None, lambda conn, heard: conn.shutdown(socket.SHUT_WR)
        for answer, first in ((text, nothing), (text, half), (text, lambda conn, heard: heard.wait(60)), (b"", nothing)):
            heard = threading.Event()
            self.addCleanup(heard.set)
            listener = socket.socket()
            self.addCleanup(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # less than the body
            listener.bind(("127.0.0.1", 0))
            listener.listen()

            def refuse(listener=listener, answer=answer, first=first, heard=heard):
                conn, _ = listener.accept()
                with conn:
                    conn.recv(1024)
                    conn.sendall(answer)
                    first(conn, heard)

            threading.Thread(target=refuse, daemon=True).start()
            user = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "t", timeout_s=60, patience_s=0)
            with self.assertRaises(Error) as raised:
                user.import_lines([b"x" * (1 << 20)] * 7)
            heard.set()
            if answer:
                self.assertEqual((raised.exception.status, raised.exception.problem["retry_after"]), (429, "7"))

    def test_answered_early_over_tls(self):
        """A TLS connection that cannot send any more has an error of its own."""
        edge, own = socket.socketpair()
        self.addCleanup(edge.close)
        self.addCleanup(own.close)
        edge = mock.Mock(fileno=own.fileno, send=mock.Mock(side_effect=[100, ssl.SSLEOFError(8, "EOF")]))
        edge.makefile.return_value = io.BufferedReader(io.BytesIO(b"HTTP/1.1 429 No\r\nRetry-After: 7\r\n\r\n"))
        connection = playhead._BoundedTLS("edge", timeout=5)
        connection.sock = edge
        connection.request("POST", "/v1/import", body=b"{}")
        self.assertEqual(connection.getresponse().headers["Retry-After"], "7")

    def test_decisions_of_now(self):
        """What may have been done is not done again as of a later now; what cannot have been is sent again."""
        film = (1, "1")
        for decide, answer in (
            (lambda user: user.delete(film), {"deleted": 1}),
            (lambda user: user.clear(), {}),
            (lambda user: user.dismiss(film), {"found": 1}),
            (lambda user: user.mark("watched", film), {"results": [{}]}),
            (lambda user: user.recording(False), {"recording": False}),
        ):
            asked, told = [], [Error(429, {}), ConnectionRefusedError(), answer]
            user = Client("http://127.0.0.1:1", "t", patience_s=5)

            def once(*request, asked=asked, told=told, **query):
                asked.append(request)
                if isinstance(told[0], Exception):
                    raise told.pop(0)
                return told[0]

            user._once = once
            decide(user)
            self.assertEqual(len(asked), 3)
            for lost in (Error(504, {}), Error(503, {}), ConnectionResetError(), TimeoutError()):
                asked.clear()
                told[:] = [lost, answer]
                with self.assertRaises(Error):
                    decide(user)
                self.assertEqual(len(asked), 1)
        told[:] = [ConnectionResetError(), {}]
        user.clear(until=datetime.now(timezone.utc))
        self.assertEqual(len(asked), 3, "up to a time of its own it may be repeated")

    def test_away(self):
        self.edge.shutdown()
        self.edge.server_close()
        gone = Client(self.user._url, "t", patience_s=1)
        with self.assertRaises(Unsent):
            gone.report(*self.beats)
        with self.assertRaises(Error) as raised:
            Client(self.user._url, "t", timeout_s=1).continue_watching()
        self.assertEqual((raised.exception.status, raised.exception.code), (0, "unreachable"))

    def test_wrong_types(self):
        for make in (
            lambda: Client(URL, 5), lambda: Client(URL, ""), lambda: Client("edge.example.com", "t"), lambda: self.user.point(1, 2),
            lambda: self.user.point("1", "2"), lambda: self.user.delete("1"), lambda: self.user.search(5), lambda: heartbeat(1, "1", "watch", 1),
            lambda: heartbeat(1, "1", "stop", "1"), lambda: self.user.report("1"), lambda: self.user.list(type="1"), lambda: self.user.list(since=5),
            lambda: self.user.clear(until=5), lambda: self.user.mark("seen", (1, "1")), lambda: self.user.recording("off"),
            lambda: self.user.changes(5), lambda: self.user.continue_watching(limit="1"), lambda: self.user.dismiss((1, "1"), dismissed="no"),
            lambda: self.user.import_lines("{}"), lambda: Client(URL, "t", timeout_s="5"),
        ):
            with self.assertRaises(TypeError):
                make()
        self.assertEqual(self.edge.got, [])

    def test_follow(self):
        """Frames of any length, in parts and behind the handshake are read; pings are answered; a lost connection comes back."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        heard = []

        def frame(kind, data, last=True):
            size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
            return bytes([128 * last | kind]) + size + data

        def serve():
            for part in (b"a" * 300, b"b"):
                conn, _ = listener.accept()
                with conn:
                    conn.recv(65536)
                    text = b'{"push":{"removed":[{"id":"%s","type":1}]}}' % part
                    conn.sendall(b"HTTP/1.1 101 Switching\r\n\r\n" + frame(9, b"hi") + frame(1, text[:9], False) + frame(0, text[9:]))
                    heard.append(conn.recv(65536))

        threading.Thread(target=serve, daemon=True).start()
        changes = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "t").follow()
        self.assertEqual([next(changes)["removed"][0]["id"] for _ in range(2)], ["a" * 300, "b"])
        self.assertEqual(heard[0][:2], bytes([128 | 10, 128 | 2]))


if __name__ == "__main__":
    unittest.main()
