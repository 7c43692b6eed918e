-- Finds members that are older than an age by the server's clock: dirty marks, or what
-- is owed.
--
-- KEYS: the sorted set of each bucket.
-- ARGV: the age in microseconds, how many to find at most.
--
-- Returns members and their times in turn.
local t = redis.call('TIME')
local before = string.format('(%.0f', t[1] * 1000000 + t[2] - ARGV[1])
local limit, out = tonumber(ARGV[2]), {}
for _, set in ipairs(KEYS) do
  local found = redis.call('ZRANGEBYSCORE', set, '-inf', before, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do
    out[#out + 1] = found[i]
    out[#out + 1] = tonumber(found[i + 1])
  end
  limit = limit - #found / 2
  if limit <= 0 then break end
end
return out
