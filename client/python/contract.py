"""The calls of client/testdata/contract.txt: PLAYHEAD_URL=... PLAYHEAD_TOKEN=... python3 contract.py"""

import os

from playhead import Client, Error, heartbeat

URL, TOKEN = os.environ["PLAYHEAD_URL"], os.environ["PLAYHEAD_TOKEN"]
user = Client(URL, TOKEN)


def say(*words):
    print(*words)


def at(record):
    return record["resume_ms"] if record else "none"


def ids(records):
    return [record["object"]["id"] for record in records]


def beat(id, kind, position_ms, **more):
    return heartbeat(1, id, kind, position_ms, duration_ms=5_400_000, session="s", **more)


say("report", *(r["status"] for r in user.report(beat("1", "stop", 600_000, meta={"title": "Low Tide"}), beat("2", "finish", 5_400_000))))
say("point", at(user.point(1, "1")), at(user.point(1, "none")))
say("lookup", *map(at, user.lookup((1, "1"), (1, "none"))))
say("list", *ids(user.list(type=1)))
say("continueWatching", *ids(user.continue_watching()))
say("search", *ids(user.search("tide")))
sessions = user.viewings(1, "1")
say("viewings", len(sessions), sessions[0]["to_ms"])
stats = user.stats(by="object", zone="Europe/Berlin")
say("stats", stats["total"]["plays"], stats["total"]["viewings"], *ids(stats["buckets"]))
say("mark", *(r["status"] for r in user.mark("watched", (1, "3"))))
for dismissed in (True, False):
    say("dismiss", user.dismiss((1, "1"), (1, "none"), dismissed=dismissed))
    say("continueWatching", *ids(user.continue_watching()))
say("recording", *(str(on).lower() for on in (user.recording(), user.recording(False), user.recording(True))))
first = user.changes()
say("changes", "resync" if first["resync"] else "")
say("delete", user.delete((1, "2"), (1, "none")))
say("changes", "removed", *(gone["id"] for gone in user.changes(first["token"])["removed"]))
lines = list(user.export())
say("export", len(lines))
user.clear()
say("clear")
say("list", *ids(user.list()))
for restore in (False, True):
    told = user.import_lines(lines, restore=restore)
    say("importLines", told["rows"], *(word for pair in told["statuses"].items() for word in pair))
say("list", *ids(user.list()))
for fails in (lambda: Client(URL, "none").recording(), lambda: user.changes("nonsense")):
    try:
        fails()
    except Error as error:
        say("error", error.status, error.code)
for change in Client(URL, TOKEN).follow():
    if change["resync"]:
        user.report(beat("4", "stop", 7_000))
    if change["items"]:
        say("follow", change["items"][0]["object"]["id"], change["items"][0]["position_ms"])
        break
