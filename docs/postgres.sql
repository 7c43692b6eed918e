-- SPDX-License-Identifier: Apache-2.0
-- A watch history in PostgreSQL 12 or later, for products to which docs/compare.md recommends a table. TestTable runs it.
-- It keeps the newest position of each item, and deleted items stay away. It counts no plays, knows no conflicts,
-- and believes the clocks of devices: correct their times first.

CREATE TABLE history (
  user_id     text        COLLATE "C" NOT NULL,
  item_type   integer     NOT NULL,
  item_id     text        COLLATE "C" NOT NULL,
  position_ms bigint      NOT NULL CHECK (position_ms >= 0),
  duration_ms bigint      NOT NULL CHECK (duration_ms >= 0),
  completed   boolean     NOT NULL,
  began_at    timestamptz NOT NULL,               -- of the viewing
  reported_at timestamptz NOT NULL,               -- of the newest report, or of the delete
  deleted     boolean     NOT NULL DEFAULT false, -- a tombstone
  meta        jsonb       NOT NULL DEFAULT '{}',
  PRIMARY KEY (user_id, item_type, item_id)
) WITH (fillfactor = 50); -- updates stay on their page

-- No report of a viewing changes began_at: updates touch no index. An index by reported_at would change each time.
CREATE INDEX history_newest ON history (user_id, began_at, item_type, item_id);

-- A clear is a mark that reads compare with. A report that is written at the same moment cannot slip past it.
CREATE TABLE history_cleared (
  user_id    text        COLLATE "C" PRIMARY KEY,
  cleared_at timestamptz NOT NULL
);

CREATE FUNCTION cleared_at(of_user text) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT coalesce((SELECT c.cleared_at FROM history_cleared c WHERE c.user_id = of_user), '-infinity')
$$;

-- What users see.
CREATE VIEW history_shown AS
  SELECT user_id, item_type, item_id, position_ms, CASE WHEN completed THEN 0 ELSE position_ms END AS resume_ms,
    duration_ms, completed, began_at, reported_at, meta
  FROM history
  WHERE NOT deleted AND reported_at > cleared_at(user_id) AND reported_at > now() - interval '90 days';

-- A report: true if it is stored, no row if the history has a newer one, or the item was deleted later. For many at once
-- keep the last report of each item, sort by key, and insert SELECT ... FROM unnest(...) with the same ON CONFLICT.
CREATE FUNCTION history_report(of_user text, type integer, id text, pos bigint, length bigint, began timestamptz, at timestamptz,
  about jsonb DEFAULT '{}') RETURNS SETOF boolean LANGUAGE sql AS $$
  INSERT INTO history AS h (user_id, item_type, item_id, position_ms, duration_ms, completed, began_at, reported_at, meta)
  VALUES (of_user, type, id, pos, length, length > 0 AND pos >= 0.9 * length, began, at, about)
  ON CONFLICT (user_id, item_type, item_id) DO UPDATE SET
    position_ms = excluded.position_ms, duration_ms = excluded.duration_ms, began_at = excluded.began_at, reported_at = excluded.reported_at,
    deleted = false,
    completed = excluded.completed OR h.completed AND h.reported_at > cleared_at(h.user_id),
    meta = CASE WHEN h.reported_at > cleared_at(h.user_id) THEN h.meta ELSE '{}' END || excluded.meta
  WHERE excluded.reported_at > h.reported_at
  RETURNING true
$$;

-- Removes an item. The row stays: without it, a phone that was offline would bring the item back.
CREATE FUNCTION history_delete(of_user text, type integer, id text) RETURNS SETOF boolean LANGUAGE sql AS $$
  UPDATE history SET deleted = true, completed = false, meta = '{}', reported_at = greatest(reported_at, now())
  WHERE user_id = of_user AND item_type = type AND item_id = id AND NOT deleted
  RETURNING true
$$;

-- Removes everything up to now.
CREATE FUNCTION history_clear(of_user text) RETURNS void LANGUAGE sql AS $$
  INSERT INTO history_cleared AS c VALUES (of_user, now())
  ON CONFLICT (user_id) DO UPDATE SET cleared_at = greatest(c.cleared_at, excluded.cleared_at)
$$;

-- A resume point.
CREATE FUNCTION history_point(of_user text, type integer, id text) RETURNS SETOF history_shown LANGUAGE sql STABLE AS $$
  SELECT * FROM history_shown WHERE user_id = of_user AND item_type = type AND item_id = id
$$;

-- A page, newest viewing first. The next one begins below began_at, type and id of the last row. What is played between
-- two pages moves to the top, and may be missed.
CREATE FUNCTION history_page(of_user text, size integer, below timestamptz DEFAULT 'infinity', below_type integer DEFAULT 0,
  below_id text DEFAULT '') RETURNS SETOF history_shown LANGUAGE sql STABLE AS $$
  SELECT * FROM history_shown
  WHERE user_id = of_user AND (began_at, item_type, item_id) < (below, below_type, below_id COLLATE "C")
  ORDER BY began_at DESC, item_type DESC, item_id DESC LIMIT size
$$;

-- Continue watching: begun and unfinished.
CREATE FUNCTION history_continue(of_user text, size integer) RETURNS SETOF history_shown LANGUAGE sql STABLE AS $$
  SELECT * FROM history_shown
  WHERE user_id = of_user AND NOT completed AND position_ms >= 0.05 * duration_ms
  ORDER BY began_at DESC, item_type DESC, item_id DESC LIMIT size
$$;

-- Daily. Tombstones live as long as a device may be offline: here 90 days after the last report or delete.
-- Marks of clears stay, one row for each user that ever cleared.
CREATE FUNCTION history_expire() RETURNS void LANGUAGE sql AS $$
  DELETE FROM history WHERE reported_at < now() - interval '90 days';
  DELETE FROM history h USING history_cleared c WHERE h.user_id = c.user_id AND h.reported_at <= c.cleared_at
$$;
