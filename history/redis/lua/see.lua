-- Records the days on which users were seen, and finds first sightings.
--
-- KEYS: each user's state, then the pending firsts of each bucket.
-- ARGV: TTL of states (s); then for each user the day as days since 1970 and as in pending members.
--
-- The field "seen" is the newest day times eight, plus a bit for it and for each of the two days before.
--
-- Returns the time in microseconds, then for each user 1 if first, otherwise 0.
local call, sub, floor = redis.call, string.sub, math.floor

-- Returns the new value of the field, or nil if the day is known.
local function with(seen, day)
  local newest, bits = floor(seen / 8), seen % 8
  if day > newest then
    bits = bits * 2 ^ math.min(day - newest, 3) % 8
    newest = day
  end
  local ago = newest - day
  if ago > 2 or floor(bits / 2 ^ ago) % 2 == 1 then return nil end
  return newest * 8 + bits + 2 ^ ago
end

local now = micros()
local out = {now}
for n = 1, (#ARGV - 1) / 2 do
  local state = KEYS[n]
  local seen = with(tonumber(call('HGET', state, 'seen') or 0), tonumber(ARGV[2 * n]))
  out[n + 1] = 0
  if seen then
    out[n + 1] = 1
    call('ZADD', sub(state, 1, 8) .. 'firsts', text(now), sub(state, 11) .. '/' .. ARGV[2 * n + 1])
    call('HSET', state, 'seen', text(seen))
    if call('TTL', state) == -1 then keep(state, ARGV[1]) end
  end
end
return out
