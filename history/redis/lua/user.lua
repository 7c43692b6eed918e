-- Functions for a user's state. They stand before each script.

-- The server's clock in microseconds.
local function micros()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Numbers as Redis is to store them: Lua would write large ones as 1.7e+12.
local function text(n)
  return string.format('%.0f', n)
end

-- Between when nothing is recorded, zeros for never. It lasts while the first is later.
local function pause(state)
  local p = redis.call('HMGET', state, 'paused', 'resumed')
  return tonumber(p[1] or 0), tonumber(p[2] or 0)
end

-- A state has a life unless recording is off: nothing would renew it then.
local function keep(state, life)
  local since, till = pause(state)
  if since > till then redis.call('PERSIST', state) else redis.call('EXPIRE', state, life) end
end

-- Whether a user is cold again because some of the records may have expired. Warmth is how
-- many milliseconds that takes after a warm-up, 0 when the archive forgets no later.
local function lapsed(warmed, warmth)
  return warmth ~= '0' and micros() >= (tonumber(warmed or 0) + warmth) * 1000
end

-- All that is known of a user, for those who ask.
local function known(state, warmth)
  local all = redis.call('HGETALL', state)
  if warmth == '0' or #all == 0 then return all end
  local warmed
  for i = 1, #all, 2 do
    if all[i] == 'warmed' then warmed = all[i + 1] end
  end
  if lapsed(warmed, warmth) then
    all[#all + 1] = 'lapsed'
    all[#all + 1] = '1'
  end
  return all
end

-- The keys of a script from the given one on, as a set.
local function set(first)
  local keys = {}
  for i = first, #KEYS do keys[KEYS[i]] = true end
  return keys
end

-- Whether the contents of all members of a list are in a set. The caller has
-- read the list before.
local function complete(list, keys)
  local contents = string.sub(list, 1, 8) .. 'c:' .. string.sub(list, 11) .. ':'
  for _, member in ipairs(redis.call('ZRANGE', list, 0, -1)) do
    if not keys[contents .. member] then return false end
  end
  return true
end

-- A content under another revision, whose eight bytes stand after the first: the old one and a step
-- of eight bytes, so that a call that the client repeats makes another one again, whatever was written
-- in between. The highest bit of the last byte stays: it says whether the archive has the content.
local function renumbered(content, step)
  local bytes, carry = {string.byte(content, 2, 9)}, 0
  local bit = bytes[8] >= 128 and 128 or 0
  for i = 1, 8 do
    local sum = bytes[i] + string.byte(step, i) + carry
    carry, bytes[i] = sum >= 256 and 1 or 0, sum % 256
  end
  bytes[8] = bytes[8] % 128 + bit
  return string.sub(content, 1, 1) .. string.char(unpack(bytes)) .. string.sub(content, 10)
end

-- Gives each record of a list another revision.
local function renumber(list, step)
  local contents = string.sub(list, 1, 8) .. 'c:' .. string.sub(list, 11) .. ':'
  for _, member in ipairs(redis.call('ZRANGE', list, 0, -1)) do
    local old = redis.call('GETRANGE', contents .. member, 0, 8)
    if #old == 9 and string.sub(old, 1, 1) == '\t' then
      redis.call('SETRANGE', contents .. member, 0, renumbered(old, step))
    end
  end
end

-- The cell time of a content is that of its version and a drift, which stands after the
-- revision, if any: the tag 0x10, then seven bits in each byte, the lowest first.
local function drift(bytes)
  local sum, scale = 0, 1
  if string.byte(bytes, 1) ~= 16 then return 0 end
  for i = 2, #bytes do
    sum = sum + string.byte(bytes, i) % 128 * scale
    if string.byte(bytes, i) < 128 then break end
    scale = scale * 128
  end
  return sum
end

-- Marks a user's own state dirty, unless an older mark stands, under another revision: the given one, or a part of it more than
-- the old one, so that a call that the client repeats makes another one again.
local function markuser(dirty, list, state, revision)
  redis.call('ZADD', dirty, 'LT', text(micros()), string.sub(list, 11) .. '/*')
  if redis.call('HSETNX', state, 'rev', revision) == 0 then
    redis.call('HINCRBY', state, 'rev', text(1 + tonumber(string.sub(revision, -10))))
  end
end

