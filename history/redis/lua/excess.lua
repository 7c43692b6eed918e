-- Finds a user's records beyond the newest ones. Tombstones, whose scores end in .5, are counted separately. Ties
-- stay together.
--
-- KEYS: the list.
-- ARGV: how many to keep of each.
--
-- Returns alternating members and scores, newest first.
local list, most = KEYS[1], tonumber(ARGV[1])
local old = {}
if redis.call('ZCARD', list) <= most then return old end
local count, edge = {0, 0}, {}
local all = redis.call('ZREVRANGE', list, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local score = tonumber(all[i + 1])
  local kind = score % 1 == 0.5 and 2 or 1
  count[kind] = count[kind] + 1
  if count[kind] == most then
    edge[kind] = score
  elseif count[kind] > most and score < edge[kind] then
    old[#old + 1] = all[i]
    old[#old + 1] = all[i + 1]
  end
end
return old
