-- Finds members of a minimum age by the server's clock: dirty marks, or pending firsts. Members in the future, left
-- by a clock that was set back, are found too: their age is unknown.
--
-- KEYS: the sorted set of each bucket.
-- ARGV: the age in microseconds, 0 for all members; maximum number of members.
--
-- Returns alternating members and times.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local limit, out = tonumber(ARGV[2]), {}
local function find(set, from, till)
  if limit <= 0 then return end
  local found = redis.call('ZRANGEBYSCORE', set, from, till, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do
    out[#out + 1] = found[i]
    out[#out + 1] = tonumber(found[i + 1])
  end
  limit = limit - #found / 2
end
for _, set in ipairs(KEYS) do
  if ARGV[1] == '0' then
    find(set, '-inf', '+inf')
  else
    find(set, '-inf', string.format('%.0f', now - ARGV[1]))
    find(set, string.format('(%.0f', now), '+inf')
  end
end
return out
