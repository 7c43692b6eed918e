-- Notes on which days users were seen, and tells who is seen for the first time.
--
-- KEYS: the state of each user, then what is pending of each bucket.
-- ARGV: seconds that users' states live; then for each user the day, counted from 1970,
-- and as it stands in the list of what is pending.
--
-- A user's field is the newest day times eight, plus a bit for it and each of the two
-- before it.
--
-- Returns the time in microseconds, then 1 for each who is first, 0 for the others.
local call, sub, floor = redis.call, string.sub, math.floor

-- Returns what the field is to be, nil when nothing is new.
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
