-- Begins the log of a user's changes, with an entry for each content that is dirty, unless
-- there is one. The user's state names it, so that it ends with the state.
--
-- KEYS: the list, the user's state, the log, then the content of each record in the list.
-- ARGV: the name; seconds that a log lives when nobody asks for it; seconds that users' states live.
--
-- Returns nothing when the list has a record more than the keys say: then nothing was done.
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
