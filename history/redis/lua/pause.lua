-- Switches recording off or on, has everyone who holds a record of the user find out,
-- and marks the user's own state dirty.
--
-- KEYS: the list, the user's state, the dirty marks.
-- ARGV: whether to record, 0 or 1; the time in milliseconds; the eight bytes of a new
-- revision; seconds that users' states live.
--
-- Returns the dirty mark, and between when nothing is recorded.
local list, state, dirty = KEYS[1], KEYS[2], KEYS[3]
local recording, at = ARGV[1] == '1', tonumber(ARGV[2])
local since, till = pause(state)

if recording and since > till then
  till = math.max(at, since + 1)
  redis.call('HSET', state, 'resumed', string.format('%.0f', till))
elseif not recording and since <= till then
  local newest = redis.call('ZREVRANGE', list, 0, 0, 'WITHSCORES')[2] or 0
  since, till = math.max(at, math.floor(tonumber(newest)), till + 1), 0
  redis.call('HSET', state, 'paused', string.format('%.0f', since))
  redis.call('HDEL', state, 'resumed')
end
renumber(list, ARGV[3])
keep(state, ARGV[4])
return {markuser(dirty, string.sub(list, 11)), since, till}
