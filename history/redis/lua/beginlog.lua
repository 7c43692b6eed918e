-- Begins a user's change log with an entry for each dirty content, unless a log exists. The user's state names the
-- log, so it ends with the state.
--
-- KEYS: the list, the state, the log, then the content of each record in the list.
-- ARGV: the log's name; TTL of an unread log (s); TTL of states (s).
--
-- Returns nil, without effect, if the list has a record whose content is not among the keys.
local call, try = redis.call, redis.pcall
local list, state, log = KEYS[1], KEYS[2], KEYS[3]
local stands = call('HGET', state, 'log')
if stands and call('ZRANGE', log, 0, 0)[1] == stands then return 0 end
if not complete(list, set(4)) then return false end
local contents, place = string.sub(list, 1, 8) .. 'c:' .. string.sub(list, 11) .. ':', 0
call('DEL', log)
call('ZADD', log, 0, ARGV[1])
for _, member in ipairs(call('ZRANGE', list, 0, -1)) do
  local last = try('GETRANGE', contents .. member, 8, 8)
  if type(last) ~= 'string' or last ~= '' and string.byte(last) < 128 then
    place = place + 1
    call('ZADD', log, place, member)
  end
end
call('EXPIRE', log, ARGV[2])
call('HSET', state, 'log', ARGV[1])
keep(state, ARGV[3])
return place
