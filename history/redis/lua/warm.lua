-- Fills a cold user from the archive, keeping everything in the cache.
--
-- KEYS: the list, the state, the content of each given record, then optionally the content of each record in the
-- list.
-- ARGV: TTL of contents (s); TTL of lists and states (s); warm period (ms), 0 for ever; the low watermark; the cut
-- time; the pause (since, until; zeros for never); 8-byte step for new revisions; the earlier pauses, empty for
-- none; number of clear marks; type and time of each; then member, score and value of each record.
--
-- Returns nil, without effect, if the list has a record whose content is not among the keys.
local call, sub = redis.call, string.sub
local list, state = KEYS[1], KEYS[2]
local ttl, life, warmth, watermark = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local old, flat = {}, call('HGETALL', state)
for i = 1, #flat, 2 do old[flat[i]] = flat[i + 1] end
if old.low_watermark and not lapsed(old.warmed, warmth) then return 0 end

-- Reports whether the second of two pauses is newer, as Pause.Newer does. Earlier pauses are texts.
local function newer(since, till, earlier, since2, till2, earlier2)
  local by = math.max(since2, till2) - math.max(since, till)
  if by ~= 0 then return by > 0 end
  if (since > till) ~= (since2 > till2) then return since2 > till2 end
  if since2 + till2 ~= since + till then return since2 + till2 < since + till end
  if #earlier2 ~= #earlier then return #earlier2 > #earlier end
  return earlier2 > earlier
end
local since, till = pause(state)
local news = newer(since, till, old.pauses or '', tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[9])

-- The later of two clear marks of a type wins.
local first, later = 11 + 2 * ARGV[10], {}
for i = 11, first - 1, 2 do
  local field = ARGV[i] == '0' and 'cleared' or 'cleared:' .. ARGV[i]
  if tonumber(old[field] or -1) < tonumber(ARGV[i + 1]) then
    old[field] = ARGV[i + 1]
    later[#later + 1], later[#later + 2] = field, ARGV[i + 1]
  end
end
if (news or #later > 0) and not complete(list, set(3)) then return false end

-- Records trimmed from the cold user may have reached the archive after the caller read it.
local trimmed = tonumber(old.trimmed or old.low_watermark)
if trimmed and trimmed > tonumber(watermark) then watermark = text(trimmed) end

if #later > 0 then call('HSET', state, unpack(later)) end
local cut = math.max(tonumber(ARGV[5]), tonumber(old.cut or 0))
if news then call('HSET', state, 'paused', ARGV[6], 'resumed', ARGV[7], 'pauses', ARGV[9]) end
if news or #later > 0 then renumber(list, ARGV[8]) end -- invalidates writers' bases

-- Adds places in portions: the number of arguments of a call is limited.
local places = {}
local function add()
  if #places > 0 then call('ZADD', list, unpack(places)) end
  places = {}
end

local records = (#ARGV - first + 1) / 3
for n = 1, records do
  local i = first + 3 * n - 3
  local member, score = ARGV[i], ARGV[i + 1]
  local at, of = math.floor(tonumber(score)), 'cleared:' .. string.match(member, '%d+$')
  local cleared = math.max(tonumber(old.cleared or -1), tonumber(old[of] or -1))
  local dropped = trimmed and tonumber(score) * 4 < trimmed -- a newer record may have been dropped
  if at <= cleared then
    cut = math.max(cut, at + drift(sub(ARGV[i + 2], 10, 20))) -- later records need a later cell time
  elseif not dropped then
    local value = ARGV[i + 2]
    if cleared >= 0 then value = renumbered(value, ARGV[8]) end -- writers may not know the clear mark
    if call('SET', KEYS[n + 2], value, 'EX', ttl, 'NX') then
      places[#places + 1] = score
      places[#places + 1] = member
      if #places == 1000 then add() end
    else
      local above, has = tonumber(score) * 4 + 1, call('ZSCORE', list, member)
      if tonumber(has or 0) < tonumber(score) and above > tonumber(watermark) then watermark = text(above) end
    end
  end
end
add()
if cut > 0 then call('HSET', state, 'cut', text(cut)) end

-- While a user is warm, no record may expire, however old. Dirty ones have no TTL.
for i = records + 3, #KEYS do call('EXPIRE', KEYS[i], ttl, 'XX') end
call('EXPIRE', list, life)
call('HSET', state, 'low_watermark', watermark, 'warmed', text(micros() / 1000))
call('HDEL', state, 'trimmed')
keep(state, life)
return 1
