-- Drops records of a user that are clean and still at the given place, and raises the low watermark above them.
--
-- KEYS: the list, the state, then the contents.
-- ARGV: TTL of states (s); then for each content its member and score.
local call, try = redis.call, redis.pcall
local list, state, life = KEYS[1], KEYS[2], ARGV[1]

-- Byte 9 has the clean bit. A missing content has expired.
local function droppable(content)
  local last = try('GETRANGE', content, 8, 8)
  return type(last) == 'string' and (last == '' or string.byte(last) >= 128)
end

-- A cold user has no low watermark: "trimmed" stores the value until the warm-up.
local function raise(watermark)
  local field = call('HEXISTS', state, 'low_watermark') == 1 and 'low_watermark' or 'trimmed'
  local stands = call('HGET', state, field)
  if not stands or tonumber(stands) < watermark then
    call('HSET', state, field, text(watermark))
    keep(state, life)
  end
end

local members, contents, newest = {}, {}, 0
for i = 3, #KEYS do
  local member, score = ARGV[2 * i - 4], tonumber(ARGV[2 * i - 3])
  local now = call('ZSCORE', list, member)
  if now and tonumber(now) == score and droppable(KEYS[i]) then
    members[#members + 1] = member
    contents[#contents + 1] = KEYS[i]
    newest = math.max(newest, score)
  end
end
if #members > 0 then
  raise(newest * 4 + 1)
  call('ZREM', list, unpack(members))
  call('DEL', unpack(contents))
end
return #members
