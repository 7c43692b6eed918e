import os
from datetime import datetime, timezone

import playhead_api as api

client = api.ApiClient(api.Configuration(host=os.environ["PLAYHEAD_URL"], access_token=os.environ["PLAYHEAD_TOKEN"]))
history = api.HistoryApi(client)

beat = api.Heartbeat(
    object=api.MediaObject(id="100", type=1), kind="stop", position_ms=90_000, duration_ms=600_000,
    event_time=datetime.now(timezone.utc), meta={"title": "Low Tide"}, removed_meta=["image"],
)
result = api.ReportsApi(client).report_heartbeats(api.HeartbeatsBody(heartbeats=[beat])).results[0]
assert result.status == "stored", result
point = history.get_resume_point(1, "100")
assert point.meta == {"title": "Low Tide"}, point
listed = history.list_history(limit=10)
api.RemovalApi(client).delete_object(1, "100")
left = history.list_history()
try:
    history.get_resume_point(1, "100")
    raise SystemExit("the record is still there")
except api.exceptions.NotFoundException:
    pass
print(f"resume at {point.resume_ms} ms, {len(listed.items)} listed, {len(left.items)} after the delete")
