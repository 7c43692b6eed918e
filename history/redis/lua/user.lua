-- Functions for a user's state, prepended to the scripts.

-- The server's clock in microseconds.
local function micros()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Formats a number for Redis; Lua would write large ones as 1.7e+12.
local function text(n)
  return string.format('%.0f', n)
end

-- Returns since and until of the pause, zeros for never. Recording is off while since is later.
local function pause(state)
  local p = redis.call('HMGET', state, 'paused', 'resumed')
  return tonumber(p[1] or 0), tonumber(p[2] or 0)
end

-- Sets a state's TTL. While recording is off it never expires, because nothing would renew it.
local function keep(state, life)
  local since, till = pause(state)
  if since > till then redis.call('PERSIST', state) else redis.call('EXPIRE', state, life) end
end

-- Reports whether a user is cold again because records may have expired. warmth is the warm period in ms, 0 for
-- ever, and optionally a time up to which all warm-ups are over.
local function lapsed(warmed, warmth)
  if warmth == '0' then return false end
  local period, over = string.match(warmth, '^(%d+) ?(%d*)$')
  warmed = tonumber(warmed or 0)
  return over ~= '' and warmed <= tonumber(over) or period ~= '0' and micros() >= (warmed + period) * 1000
end

-- Returns a user's state as a flat list, with "lapsed" if the warm period is over.
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

-- Returns the script's keys from the given index on, as a set.
local function set(first)
  local keys = {}
  for i = first, #KEYS do keys[KEYS[i]] = true end
  return keys
end

-- Reports whether the contents of all members of a list are in a set.
local function complete(list, keys)
  local contents = string.sub(list, 1, 8) .. 'c:' .. string.sub(list, 11) .. ':'
  for _, member in ipairs(redis.call('ZRANGE', list, 0, -1)) do
    if not keys[contents .. member] then return false end
  end
  return true
end

-- Returns a content with a new revision: the old one plus an 8-byte step. So a repeated call makes
-- yet another revision, whatever was written in between. The highest bit, the clean bit, stays.
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

-- Gives each record of a list a new revision.
local function renumber(list, step)
  local contents = string.sub(list, 1, 8) .. 'c:' .. string.sub(list, 11) .. ':'
  for _, member in ipairs(redis.call('ZRANGE', list, 0, -1)) do
    local old = redis.call('GETRANGE', contents .. member, 0, 8)
    if #old == 9 and string.sub(old, 1, 1) == '\t' then
      redis.call('SETRANGE', contents .. member, 0, renumbered(old, step))
    end
  end
end

-- Returns how much later a content's cell time is than its version. The value follows the revision, if any: tag
-- 0x10, then a varint.
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

-- Marks a user's own state dirty, unless an older mark exists, and gives it a new revision: the given one, or the
-- old one plus a part of it. So a repeated call makes yet another revision.
local function markuser(dirty, list, state, revision)
  redis.call('ZADD', dirty, 'LT', text(micros()), string.sub(list, 11) .. '/*')
  if redis.call('HSETNX', state, 'rev', revision) == 0 then
    redis.call('HINCRBY', state, 'rev', text(1 + tonumber(string.sub(revision, -10))))
  end
end

