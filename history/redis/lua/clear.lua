-- Clears a user: sets the mark, removes what it covers with the dirty marks, and
-- marks the user's own state dirty.
--
-- KEYS: the list, the user's state, the dirty marks.
-- ARGV: the type (0 for all), the time in milliseconds, seconds that lists and
-- users' states live.
--
-- Returns the dirty mark.
local call, sub = redis.call, string.sub
local list, state, dirty = KEYS[1], KEYS[2], KEYS[3]
local typ, at, life = ARGV[1], ARGV[2], ARGV[3]
local bucket, uid = sub(list, 1, 8), sub(list, 11)

local field = typ == '0' and 'cleared' or 'cleared:' .. typ
local stands = call('HGET', state, field)
if stands and tonumber(stands) >= tonumber(at) then
  at = stands
else
  call('HSET', state, field, at)
end

-- Removes in portions: a call takes some thousand arguments.
local members, marks, contents = {}, {}, {}
local function remove()
  if #members == 0 then return end
  call('DEL', unpack(contents))
  call('ZREM', list, unpack(members))
  call('ZREM', dirty, unpack(marks))
  members, marks, contents = {}, {}, {}
end

local suffix = '_' .. typ
local before = string.format('(%.0f', tonumber(at) + 1)
for _, m in ipairs(call('ZRANGEBYSCORE', list, '-inf', before)) do
  if typ == '0' or sub(m, -#suffix) == suffix then
    members[#members + 1] = m
    marks[#marks + 1] = uid .. '/' .. m
    contents[#contents + 1] = bucket .. 'c:' .. uid .. ':' .. m
    if #members == 1000 then remove() end
  end
end
remove()

call('EXPIRE', list, life)
keep(state, life)
return markuser(dirty, uid)
