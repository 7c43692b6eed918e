-- Stores each record if its base is current, with its place in the list and, if requested, a dirty mark unless an
-- older one exists.
--
-- KEYS: the content of each write, all different, then the list of each. In a cluster also the users' states, the
-- dirty marks and, if ARGV[4] is 1, the change logs.
-- ARGV: TTL of lists and states (s); warm period (ms), 0 for ever; number of leading writes that set a mark; 1 if
-- change logs may be touched. Then for each write: base (8 bytes), value, score, member. Without a base the 8 bytes
-- are zero, followed by the required pause (since, until), the latest permitted clear mark of the type, and 1 if the
-- user must be complete. Writes without a base or on a clean one set a mark.
--
-- Returns the other outcomes: {n, 1, value, state} for a conflict, {n, 2, error}, {n, 3} for a write that needs the
-- change log.
--
-- Contents are read first and stored last, each in one command. A script stopped by an error may leave an extra mark
-- or place, never a content without its mark. Stored contents have no TTL: they are dirty, and mark_clean sets it.
local KEYS, ARGV, call, try, sub, byte, type = KEYS, ARGV, redis.call, redis.pcall, string.sub, string.byte, type
local life, warmth, marked = ARGV[1], ARGV[2], tonumber(ARGV[3])
local refresh = life - 43200
local none = '\0\0\0\0\0\0\0\0'
local out, now = {}, nil
if marked > 0 then now = text(micros()) end

-- Keys of a user differ in the letter after the bucket, "{b0007}:".
local function state(list)
  return sub(list, 1, 8) .. 'u' .. sub(list, 10)
end

-- Returns the revision at the start of a content.
local function revision(content)
  if content and #content > 8 and sub(content, 1, 1) == '\t' then return sub(content, 2, 9) end
  return none
end

local function clean(revision)
  return sub(revision, 1, 7) .. string.char(byte(revision, 8) % 128 + 128)
end

-- Reports whether the user's state forbids a write without a base.
local function refuses(list, knew, member)
  local u = call('HMGET', state(list), 'cleared', 'cleared:' .. string.match(member, '%d+$'), 'paused', 'resumed', 'low_watermark', 'warmed')
  local since, till, cleared, complete = string.match(knew, '^(%d+) (%d+) (%d+) (%d)$')
  if tonumber(cleared) < math.max(u[1] or 0, u[2] or 0) then return true end
  if tonumber(since) ~= tonumber(u[3] or 0) or tonumber(till) ~= tonumber(u[4] or 0) then return true end
  return complete == '1' and (u[5] ~= '0' or lapsed(u[6], warmth))
end

-- Lists and states outlive contents by half a day at least, so renewing them twice a day is enough.
local function renew(list)
  if call('TTL', list) < refresh then
    call('EXPIRE', list, life)
    keep(state(list), life)
  end
end

-- Adds an entry to the user's change log, if one exists. Returns false if the log may not be touched.
local function begins(list, member)
  if not call('HGET', state(list), 'log') then return true end
  if ARGV[4] == '0' then return false end
  local log = sub(list, 1, 8) .. 'l' .. sub(list, 10)
  local last = call('ZREVRANGE', log, 0, 0, 'WITHSCORES')[2]
  if last then call('ZADD', log, text(last + 1), member) end -- otherwise it has expired
  return true
end

local n = (#ARGV - 4) / 4
local held = call('MGET', unpack(KEYS, 1, n))

-- MGET does not tell a key of another type from a missing one. Returns the errors of such keys.
local function foreign()
  local missing, errors = {}, {}
  for i = 1, n do
    if not held[i] then missing[#missing + 1] = KEYS[i] end
  end
  if #missing == 0 or call('EXISTS', unpack(missing)) == 0 then return errors end
  for i = 1, n do
    local got = not held[i] and try('GETRANGE', KEYS[i], 0, 0)
    if type(got) == 'table' then errors[i] = got.err end
  end
  return errors
end

-- Reports whether a write may be stored. Otherwise it was stored before, or conflicts.
local function fits(i, list, j)
  local base, own, prior = sub(ARGV[j + 1], 1, 8), sub(ARGV[j + 2], 2, 9), revision(held[i])
  if prior == own or prior == clean(own) then return false end -- a repeated call
  if prior == base and (base ~= none or not refuses(list, sub(ARGV[j + 1], 9), ARGV[j + 4])) then return true end
  out[#out + 1] = {i, 1, held[i], known(state(list), warmth)}
  return false
end

-- Sets the mark. Returns false for a write that needs the change log.
local function mark(i, list, member)
  local prior = revision(held[i])
  if (prior == none or byte(prior, 8) >= 128) and not begins(list, member) then
    out[#out + 1] = {i, 3}
    return false
  end
  call('ZADD', sub(list, 1, 8) .. 'dirty', 'LT', now, sub(list, 11) .. '/' .. member)
  return true
end

local errors, new = foreign(), {}
for i = 1, n do
  local list, j = KEYS[n + i], 4 * i
  if errors[i] then
    out[#out + 1] = {i, 2, errors[i]}
  elseif i > marked then -- the base is dirty, so its mark exists
    if held[i] and sub(held[i], 2, 9) == ARGV[j + 1] or fits(i, list, j) then
      call('ZADD', list, ARGV[j + 3], ARGV[j + 4])
      new[#new + 1], new[#new + 2] = KEYS[i], ARGV[j + 2]
    end
  elseif fits(i, list, j) and mark(i, list, ARGV[j + 4]) then
    call('ZADD', list, ARGV[j + 3], ARGV[j + 4])
    new[#new + 1], new[#new + 2] = KEYS[i], ARGV[j + 2]
    renew(list)
  end
end
if #new > 0 then call('MSET', unpack(new)) end
return out
