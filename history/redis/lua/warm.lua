-- Fills a cold user from the archive. What the cache has, stays.
--
-- KEYS: the list, the user's state.
-- ARGV: seconds that contents live; seconds that lists and users' states live; the
-- floor; between when nothing is recorded, zeros for never; the eight bytes of a new
-- revision; how many clear marks; a type and a time for each; then the member, the
-- score and the value of each record.
--
-- Returns whether the user was cold.
local call, sub = redis.call, string.sub
local list, state = KEYS[1], KEYS[2]
local ttl, life, floor = ARGV[1], ARGV[2], ARGV[3]
if call('HEXISTS', state, 'floor') == 1 then return 0 end

-- What was trimmed from the cold user may have reached the archive after the
-- caller read it.
local trimmed = call('HGET', state, 'trimmed')
if trimmed and tonumber(trimmed) > tonumber(floor) then floor = trimmed end
call('HSET', state, 'floor', floor)
call('HDEL', state, 'trimmed')

local cleared = {}
local flat = call('HGETALL', state)
for i = 1, #flat, 2 do cleared[flat[i]] = tonumber(flat[i + 1]) end
local first = 8 + 2 * ARGV[7]
for i = 8, first - 1, 2 do
  local field = ARGV[i] == '0' and 'cleared' or 'cleared:' .. ARGV[i]
  local at = tonumber(ARGV[i + 1])
  if not cleared[field] or cleared[field] < at then
    cleared[field] = at
    call('HSET', state, field, ARGV[i + 1])
  end
end

-- Of two pauses the one that was changed last is the newer.
local since, till = pause(state)
if math.max(ARGV[4], ARGV[5]) > math.max(since, till) then
  call('HSET', state, 'paused', ARGV[4], 'resumed', ARGV[5])
  renumber(list, ARGV[6])
end

-- Places are added in portions: a call takes some thousand arguments.
local contents, places = sub(list, 1, 8) .. 'c:' .. sub(list, 11) .. ':', {}
local function add()
  if #places > 0 then call('ZADD', list, unpack(places)) end
  places = {}
end

for i = first, #ARGV, 3 do
  local member, score = ARGV[i], ARGV[i + 1]
  local at = math.floor(tonumber(score))
  local typ = 'cleared:' .. string.match(member, '%d+$')
  local dropped = trimmed and tonumber(score) * 4 < tonumber(trimmed) -- for all that one knows, a newer one
  if not dropped and at > math.max(cleared.cleared or -1, cleared[typ] or -1) then
    if call('SET', contents .. member, ARGV[i + 2], 'EX', ttl, 'NX') then
      places[#places + 1] = score
      places[#places + 1] = member
      if #places == 1000 then add() end
    end
  end
end
add()
call('EXPIRE', list, life)
keep(state, life)
return 1
