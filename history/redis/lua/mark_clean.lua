-- Marks contents clean: sets the clean bit and the TTL of each content with the given revision, and removes its dirty
-- mark.
--
-- KEYS: dirty marks of the buckets, then for each key its content and its list, or the user's state alone.
-- ARGV: number of buckets; number of keys of each; then for each key its dirty mark's member, its revision (8 bytes
-- with the bit unset, or digits for a user's state) and the TTL of its content (s).
local call, try, sub, byte = redis.call, redis.pcall, string.sub, string.byte
local buckets = tonumber(ARGV[1])

local function user(state, revision)
  return (call('HGET', state, 'rev') or '0') == revision
end

-- Sets the TTL of a content so that it ends half a day before its list at the latest. The list's TTL began with the
-- last write that set a mark, or with a warm-up.
local function expire(content, list, ttl)
  local left = call('TTL', list)
  if left ~= -1 then ttl = math.max(1, math.min(ttl, left - 43200)) end
  call('EXPIRE', content, ttl)
end

-- The clean bit is in byte 9, the last of the revision. Unreadable and missing contents have revision zero.
local function content(key, list, revision, ttl)
  local head = try('GETRANGE', key, 0, 8)
  if type(head) == 'table' or #head < 9 or sub(head, 1, 1) ~= '\t' then
    if revision ~= '\0\0\0\0\0\0\0\0' then return false end
    expire(key, list, ttl)
    return true
  end
  local last = byte(head, 9)
  if sub(head, 2, 8) ~= sub(revision, 1, 7) or last % 128 ~= byte(revision, 8) then return false end
  if last < 128 then
    expire(key, list, ttl) -- first: a content without TTL is dirty
    call('SETRANGE', key, 8, string.char(last + 128))
  end
  return true
end

local key, arg = buckets + 1, buckets + 2
for b = 1, buckets do
  local gone = {}
  for _ = 1, tonumber(ARGV[b + 1]) do
    local member, revision, settled = ARGV[arg], ARGV[arg + 1], false
    if sub(member, -2) == '/*' then
      settled, key = user(KEYS[key], revision), key + 1
    else
      settled, key = content(KEYS[key], KEYS[key + 1], revision, ARGV[arg + 2]), key + 2
    end
    if settled then gone[#gone + 1] = member end
    arg = arg + 3
  end
  if #gone > 0 then call('ZREM', KEYS[b], unpack(gone)) end
end
return 0
