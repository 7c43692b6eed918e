-- Switches recording off or on, has everyone who holds a record of the user find out,
-- and marks the user's own state dirty.
--
-- KEYS: the list, the user's state, the dirty marks, then the content of each record in
-- the list.
-- ARGV: whether to record, 0 or 1; the time in milliseconds; the eight bytes of a new
-- revision; the digits of one of the state; seconds that users' states live.
--
-- Returns between when nothing is recorded, nothing when the list has a record more than
-- the keys say: then nothing was done.
local list, state, dirty = KEYS[1], KEYS[2], KEYS[3]
local recording, at = ARGV[1] == '1', tonumber(ARGV[2])
if not complete(list, set(4)) then return false end
local since, till = pause(state)
markuser(dirty, list)

if recording and since > till then
  till = math.max(at, since + 1)
  redis.call('HSET', state, 'resumed', text(till))
elseif not recording and since <= till then
  local newest = redis.call('ZREVRANGE', list, 0, 0, 'WITHSCORES')[2] or 0
  since, till = math.max(at, math.floor(tonumber(newest)), till + 1), 0
  redis.call('HSET', state, 'paused', text(since))
  redis.call('HDEL', state, 'resumed')
end
redis.call('HSET', state, 'rev', ARGV[4])
renumber(list, ARGV[3])
keep(state, ARGV[5])
return {since, till}
