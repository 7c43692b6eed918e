-- Marks contents clean: sets the clean bit of each content with the given revision and removes its dirty mark.
--
-- KEYS: dirty marks of the buckets, then each key's content, or the user's state.
-- ARGV: number of buckets; number of keys of each; then for each key its dirty mark's member and its revision: 8
-- bytes with the bit unset, or digits for a user's state.
local call, try, sub, byte = redis.call, redis.pcall, string.sub, string.byte
local buckets = tonumber(ARGV[1])

local function user(state, revision)
  return (call('HGET', state, 'rev') or '0') == revision
end

-- The clean bit is in byte 9, the last of the revision. Unreadable and missing contents have revision zero.
local function content(key, revision)
  local head = try('GETRANGE', key, 0, 8)
  if type(head) == 'table' or #head < 9 or sub(head, 1, 1) ~= '\t' then
    return revision == '\0\0\0\0\0\0\0\0'
  end
  local last = byte(head, 9)
  if sub(head, 2, 8) ~= sub(revision, 1, 7) or last % 128 ~= byte(revision, 8) then return false end
  if last < 128 then call('SETRANGE', key, 8, string.char(last + 128)) end
  return true
end

local key, arg = buckets + 1, buckets + 2
for b = 1, buckets do
  local gone = {}
  for _ = 1, tonumber(ARGV[b + 1]) do
    local member = ARGV[arg]
    local has = sub(member, -2) == '/*' and user or content
    if has(KEYS[key], ARGV[arg + 1]) then gone[#gone + 1] = member end
    key, arg = key + 1, arg + 2
  end
  if #gone > 0 then call('ZREM', KEYS[b], unpack(gone)) end
end
return 0
