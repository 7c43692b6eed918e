-- Removes the dirty marks that still stand as given.
--
-- KEYS: the dirty marks of buckets.
-- ARGV: for each bucket how many marks are given, then their members, then they.
local call, from = redis.call, 1
for i = 1, #KEYS do
  local n, gone = tonumber(ARGV[from]), {}
  local stand = call('ZMSCORE', KEYS[i], unpack(ARGV, from + 1, from + n))
  for j = 1, n do
    if stand[j] and tonumber(stand[j]) == tonumber(ARGV[from + n + j]) then
      gone[#gone + 1] = ARGV[from + j]
    end
  end
  if #gone > 0 then call('ZREM', KEYS[i], unpack(gone)) end
  from = from + 2 * n + 1
end
return 0
