-- Replaces a user's pause, gives each of the user's records a new revision, and marks the user's own state dirty.
--
-- KEYS: the list, the state, the dirty marks, then the content of each record in the list.
-- ARGV: the expected pause (since, until; zeros for never); the new one; 8-byte step for new revisions; digits of a
-- new revision of the state; TTL of states (s); the earlier pauses, empty for none.
--
-- Returns 1, or 0 if another pause is in force. Returns nil, without effect, if the list has a record whose content
-- is not among the keys.
local list, state, dirty = KEYS[1], KEYS[2], KEYS[3]
local since, till = pause(state)
if since ~= tonumber(ARGV[1]) or till ~= tonumber(ARGV[2]) then return 0 end
if not complete(list, set(4)) then return false end
markuser(dirty, list, state, ARGV[6])
since, till = tonumber(ARGV[3]), tonumber(ARGV[4])
if since > 0 then redis.call('HSET', state, 'paused', ARGV[3]) end
if till > 0 then redis.call('HSET', state, 'resumed', ARGV[4]) else redis.call('HDEL', state, 'resumed') end
if ARGV[8] ~= '' then redis.call('HSET', state, 'pauses', ARGV[8]) else redis.call('HDEL', state, 'pauses') end
renumber(list, ARGV[5])
keep(state, ARGV[7])
return 1
