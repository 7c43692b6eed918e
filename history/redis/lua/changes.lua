-- Reads a user's change log.
--
-- KEYS: the log, the state.
-- ARGV: the place to start after; maximum number of entries; TTL of an unread log (s).
--
-- Returns the log's name, the last dropped place, the last place, then alternating members and places; nothing
-- without a log.
local log = KEYS[1]
local head = redis.call('ZRANGE', log, 0, 0, 'WITHSCORES')
if #head == 0 or redis.call('HGET', KEYS[2], 'log') ~= head[1] then return {} end
if redis.call('TTL', log) < ARGV[3] - 86400 then redis.call('EXPIRE', log, ARGV[3]) end
local out = {head[1], head[2], redis.call('ZREVRANGE', log, 0, 0, 'WITHSCORES')[2]}
local from = math.max(tonumber(ARGV[1]), tonumber(head[2]))
local found = redis.call('ZRANGEBYSCORE', log, string.format('(%.0f', from), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #found do out[i + 3] = found[i] end
return out
