-- Keeps the longest hold that was said lately.
--
-- KEYS: where.
-- ARGV: the hold in milliseconds; seconds until it is forgotten.
local stands = redis.call('GET', KEYS[1])
if not stands or tonumber(stands) <= tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
end
return 0
