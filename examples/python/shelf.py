# SPDX-License-Identifier: Apache-2.0
"""A shelf of books in a terminal: notes where you stopped reading, and lists what is unfinished.

    cp ../../client/python/playhead.py .        # or install the package
    export PLAYHEAD_URL=http://127.0.0.1:8080 PLAYHEAD_TOKEN=...
    python3 shelf.py read "Moby Dick" 120 600    # page 120 of 600
    python3 shelf.py list
    python3 shelf.py watch                       # what other devices note, as it happens
"""

import os
import sys

from playhead import Client, Error, Unsent, heartbeat

ARTICLE = 4
PAGE = 60_000  # ms: a page counts as a minute of reading


def read(shelf, title, page, pages):
    done = page >= pages
    [result] = shelf.report(heartbeat(
        ARTICLE, title, "finish" if done else "stop", position_ms=page * PAGE, duration_ms=pages * PAGE, device="shelf", meta={"title": title},
    ))
    print(result["status"], result.get("error", ""))


def show(record):
    title = record.get("meta", {}).get("title", record["object"]["id"])
    print(f"{title}: page {record['position_ms'] // PAGE} of {record['duration_ms'] // PAGE}")


def main(command="list", *args):
    shelf = Client(os.environ["PLAYHEAD_URL"], os.environ["PLAYHEAD_TOKEN"])
    if command == "read":
        title, page, pages = args
        read(shelf, title, int(page), int(pages))
    elif command == "list":
        for record in shelf.continue_watching(type=ARTICLE):
            show(record)
    elif command == "watch":
        for change in shelf.follow():
            for record in change["items"]:
                show(record)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Unsent as unsent:
        sys.exit(f"not stored, try again: {unsent}")
    except Error as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
