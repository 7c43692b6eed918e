-- Replaces the pause of a user, has everyone who holds a record of the user find out,
-- and marks the user's own state dirty.
--
-- KEYS: the list, the user's state, the dirty marks, then the content of each record in
-- the list.
-- ARGV: since and until when nothing is recorded, zeros for never, as it must be; the same
-- as it is to be; the eight bytes of a step to new revisions; the digits of one of the state; seconds
-- that users' states live; the earlier pauses, empty for none.
--
-- Returns 1, 0 when another pause is in force, nothing when the list has a record more than
-- the keys say: then nothing was done.
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
