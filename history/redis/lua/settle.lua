-- Removes the dirty marks that still stand as given.
--
-- KEYS: the dirty marks of the bucket of each.
-- ARGV: a member and a mark for each.
local call = redis.call
for i = 1, #KEYS do
  local stands = call('ZSCORE', KEYS[i], ARGV[2 * i - 1])
  if stands and tonumber(stands) == tonumber(ARGV[2 * i]) then
    call('ZREM', KEYS[i], ARGV[2 * i - 1])
  end
end
return 0
