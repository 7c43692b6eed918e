-- Clears a user: sets the clear mark, removes the covered records and their dirty marks, gives the other records
-- new revisions, and marks the user's own state dirty.
--
-- KEYS: the list, the state, the dirty marks, then the content of each record in the list.
-- ARGV: the type, 0 for all; the time (ms); digits of a new revision of the state; TTL of lists and states (s);
-- 8-byte step for new revisions of records.
--
-- Returns the time of the clear mark. Returns nil, without effect, if the list has a record whose content is not
-- among the keys.
local call, try, sub = redis.call, redis.pcall, string.sub
local list, state, dirty = KEYS[1], KEYS[2], KEYS[3]
local typ, at, life = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local prefix, uid = sub(list, 1, 8) .. 'c:' .. sub(list, 11) .. ':', sub(list, 11)

-- Records of the type and their times, oldest first.
local found, times = {}, {}
local suffix, all = '_' .. typ, call('ZRANGE', list, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  if typ == '0' or sub(all[i], -#suffix) == suffix then
    found[#found + 1] = all[i]
    times[#times + 1] = math.floor(tonumber(all[i + 1]))
  end
end

local field = typ == '0' and 'cleared' or 'cleared:' .. typ
local stands = call('HMGET', state, field, 'cut')
at = math.max(at, tonumber(stands[1] or at))

if not complete(list, set(4)) then return false end
local cut, last = tonumber(stands[2] or 0), 0
for i, member in ipairs(found) do
  if times[i] > at then break end
  local tail = try('GETRANGE', prefix .. member, 9, 19)
  if type(tail) == 'string' and tail ~= '' then cut = math.max(cut, times[i] + drift(tail)) end
  last = i
end

markuser(dirty, list, state, ARGV[3])
call('HSET', state, field, text(at))
if cut > 0 then call('HSET', state, 'cut', text(cut)) end
call('HDEL', state, 'log') -- a clear ends the change log
call('EXPIRE', list, life)
keep(state, life)

-- Removes in portions: the number of arguments of a call is limited.
for from = 1, last, 1000 do
  local members, marks, contents = {}, {}, {}
  for i = from, math.min(from + 999, last) do
    members[#members + 1] = found[i]
    marks[#marks + 1] = uid .. '/' .. found[i]
    contents[#contents + 1] = prefix .. found[i]
  end
  call('DEL', unpack(contents))
  call('ZREM', list, unpack(members))
  call('ZREM', dirty, unpack(marks))
end
renumber(list, ARGV[5])
return text(at)
