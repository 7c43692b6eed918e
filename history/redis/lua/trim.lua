-- Drops what is older than the newest records of each user and not dirty, and
-- raises the floor above it.
--
-- KEYS: the lists.
-- ARGV: how many records to keep; seconds that users' states live.
--
-- Returns whether there is more to drop: a call handles a portion of each list.
local call, sub = redis.call, string.sub
local most, life = tonumber(ARGV[1]), ARGV[2]
local portion = 1000

-- A cold user has no floor yet: it is remembered for the day there is one.
local function raise(state, floor)
  local field = call('HEXISTS', state, 'floor') == 1 and 'floor' or 'trimmed'
  local stands = call('HGET', state, field)
  if not stands or tonumber(stands) < floor then
    call('HSET', state, field, string.format('%.0f', floor))
    keep(state, life)
  end
end

local function trim(list)
  if call('ZCARD', list) <= most then return false end
  local bucket, uid = sub(list, 1, 8), sub(list, 11)
  local edge = call('ZREVRANGE', list, most - 1, most - 1, 'WITHSCORES')[2]
  local old = call('ZRANGEBYSCORE', list, '-inf', '(' .. edge, 'WITHSCORES', 'LIMIT', 0, portion)
  if #old == 0 then return false end
  local marks, members, contents, last = {}, {}, {}, 0
  for i = 1, #old, 2 do marks[#marks + 1] = uid .. '/' .. old[i] end
  marks = call('ZMSCORE', bucket .. 'dirty', unpack(marks))
  for i = 1, #old, 2 do
    if not marks[(i + 1) / 2] then
      members[#members + 1] = old[i]
      contents[#contents + 1] = bucket .. 'c:' .. uid .. ':' .. old[i]
      last = old[i + 1]
    end
  end
  if #members == 0 then return false end
  call('DEL', unpack(contents))
  call('ZREM', list, unpack(members))
  raise(bucket .. 'u:' .. uid, last * 4 + 1)
  return #old == 2 * portion
end

local more = 0
for _, list in ipairs(KEYS) do
  if trim(list) then more = 1 end
end
return more
