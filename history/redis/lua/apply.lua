-- Stores the records whose bases still stand, each with its place in the list and,
-- where asked for, its dirty mark.
--
-- KEYS: the content and the list of each write.
-- ARGV: seconds that contents live; seconds that lists and users' states live; how
-- many of the writes want a mark, the first ones; then for each write the eight
-- bytes of its base (zeros for none), the value, the score and the member.
--
-- Returns the mark of all that want one, then what came out differently: {n, 0,
-- mark}, {n, 1, value, user's state} for a conflict, {n, 2, error}.
local KEYS, ARGV, call, try, sub, type = KEYS, ARGV, redis.call, redis.pcall, string.sub, type
local ttl, life, marked = ARGV[1], ARGV[2], tonumber(ARGV[3])
local refresh = life - 43200
local none = '\0\0\0\0\0\0\0\0'
local out, now = {0}, nil

if marked > 0 then
  local t = call('TIME')
  out[1] = t[1] * 1000000 + t[2]
  now = string.format('%.0f', out[1])
end

-- The keys of a user differ in the letter after the bucket, "{b0007}:".
local function state(list)
  return sub(list, 1, 8) .. 'u' .. sub(list, 10)
end

-- A delete, whose score ends in .5, is never refused for a pause.
local function covered(list, score, member)
  local at, rank = math.modf(tonumber(score))
  local of = state(list)
  local marks = call('HMGET', of, 'cleared', 'cleared:' .. string.match(member, '%d+$'))
  if marks[1] and at <= tonumber(marks[1]) or marks[2] and at <= tonumber(marks[2]) then return true end
  local since, till = pause(of)
  return rank ~= 0.5 and since > 0 and at > since and (since > till or at <= till)
end

-- Decides about a write that did not find its base. The value is in place already,
-- so that it is taken back if it must not stand.
local function settled(n, old)
  local content, list, j = KEYS[2 * n - 1], KEYS[2 * n], 4 * n
  if type(old) == 'table' then -- not a string, or no memory: nothing was written
    out[#out + 1] = {n, 2, old.err}
    return false
  end
  local prior = none
  if old and #old > 8 and sub(old, 1, 1) == '\t' then prior = sub(old, 2, 9) end
  if prior == sub(ARGV[j + 1], 2, 9) then return true end -- the same call once more
  if prior == none and ARGV[j] == none and not covered(list, ARGV[j + 2], ARGV[j + 3]) then return true end
  if old then call('SET', content, old, 'KEEPTTL') else call('DEL', content) end
  out[#out + 1] = {n, 1, old, call('HGETALL', state(list))}
  return false
end

-- Lists and states outlive contents by a day, so that starting their lives anew
-- twice a day is enough.
local function renew(list)
  if call('TTL', list) < refresh then
    call('EXPIRE', list, life)
    keep(state(list), life)
  end
end

-- A mark is new also when the clock stood still or went back.
local function mark(n, list, member)
  local dirty, key = sub(list, 1, 8) .. 'dirty', sub(list, 11) .. '/' .. member
  if call('ZADD', dirty, 'GT', 'CH', now, key) == 0 then
    local later = call('ZSCORE', dirty, key) + 1
    call('ZADD', dirty, string.format('%.0f', later), key)
    out[#out + 1] = {n, 0, later}
  end
end

for n = 1, #KEYS / 2 do
  local list, j = KEYS[2 * n], 4 * n
  -- A content's life starts anew with its mark: so much later than its last write
  -- as a hold is long, and the server has less to do for each write.
  local content, old = KEYS[2 * n - 1], nil
  if n <= marked then
    old = try('SET', content, ARGV[j + 1], 'EX', ttl, 'GET')
  else
    old = try('SET', content, ARGV[j + 1], 'KEEPTTL', 'GET')
  end
  if type(old) == 'string' and sub(old, 2, 9) == ARGV[j] or settled(n, old) then
    call('ZADD', list, ARGV[j + 2], ARGV[j + 3])
    if n <= marked then mark(n, list, ARGV[j + 3]) elseif not old then call('EXPIRE', content, ttl) end
    if n <= marked or not old then renew(list) end
  end
end
return out
