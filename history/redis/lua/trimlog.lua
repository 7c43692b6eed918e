-- Drops the oldest entries of a user's change log, up to the first dirty content. Entries that have moved since are
-- skipped.
--
-- KEYS: the log, then the content of each entry.
-- ARGV: the log's name; then for each entry its member and place, oldest first.
--
-- Returns the number of dropped entries.
local call, try = redis.call, redis.pcall
local log, dropped = KEYS[1], {}
local head = call('ZRANGE', log, 0, 0)[1]
if head ~= ARGV[1] then return 0 end
local last
for i = 2, #KEYS do
  local member, place = ARGV[2 * i - 2], ARGV[2 * i - 1]
  if call('ZSCORE', log, member) == place then
    local bit = try('GETRANGE', KEYS[i], 8, 8)
    if type(bit) ~= 'string' or bit ~= '' and string.byte(bit) < 128 then break end
    dropped[#dropped + 1], last = member, place
  end
end
if last then
  call('ZREM', log, unpack(dropped))
  call('ZADD', log, last, head)
end
return #dropped
