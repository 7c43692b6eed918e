-- Stores each record if its base is current, with its place in the list and, if requested, a dirty mark unless an
-- older one exists.
--
-- KEYS: content and list of each write. In a cluster also the users' states, the dirty marks and, if ARGV[5] is 1,
-- the change logs.
-- ARGV: TTL of contents (s); TTL of lists and states (s); warm period (ms), 0 for ever; number of leading writes
-- that set a mark; 1 if change logs may be touched. Then for each write: base (8 bytes), value, score, member.
-- Without a base the 8 bytes are zero, followed by the required pause (since, until), the latest permitted clear
-- mark of the type, and 1 if the user must be complete. Writes without a base or on a clean one set a mark.
--
-- Returns the other outcomes: {n, 1, value, state} for a conflict, {n, 2, error}, {n, 3} for a write that needs the
-- change log.
local KEYS, ARGV, call, try, sub, byte, type = KEYS, ARGV, redis.call, redis.pcall, string.sub, string.byte, type
local ttl, life, warmth, marked = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
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

-- Lists and states outlive contents by a day, so renewing them twice a day is enough.
local function renew(list)
  if call('TTL', list) < refresh then
    call('EXPIRE', list, life)
    keep(state(list), life)
  end
end

-- Adds an entry to the user's change log, if one exists. Returns false if the log may not be touched.
local function begins(list, member)
  if not call('HGET', state(list), 'log') then return true end
  if ARGV[5] == '0' then return false end
  local log = sub(list, 1, 8) .. 'l' .. sub(list, 10)
  local last = call('ZREVRANGE', log, 0, 0, 'WITHSCORES')[2]
  if last then call('ZADD', log, text(last + 1), member) end -- otherwise it has expired
  return true
end

-- Checks first, then writes the mark before the content: a script stopped by an error may leave an extra mark,
-- never a missing one.
local function first(n, content, list, j)
  local base, own = sub(ARGV[j + 1], 1, 8), sub(ARGV[j + 2], 2, 9)
  local old = try('GETRANGE', content, 0, 8)
  if type(old) == 'table' then
    out[#out + 1] = {n, 2, old.err}
    return
  end
  local prior = revision(old)
  if prior == clean(own) then return end -- a repeated call, already archived
  local fits = prior == base and (base ~= none or not refuses(list, sub(ARGV[j + 1], 9), ARGV[j + 4]))
  if not fits and prior ~= own then
    out[#out + 1] = {n, 1, call('GET', content), known(state(list), warmth)}
    return
  end
  if (prior == none or byte(prior, 8) >= 128) and not begins(list, ARGV[j + 4]) then
    out[#out + 1] = {n, 3}
    return
  end
  call('ZADD', sub(list, 1, 8) .. 'dirty', 'LT', now, sub(list, 11) .. '/' .. ARGV[j + 4])
  call('ZADD', list, ARGV[j + 3], ARGV[j + 4])
  call('SET', content, ARGV[j + 2], 'EX', ttl)
  renew(list)
end

-- Handles a value that replaced something other than its base. Returns whether the write was refused.
local function refused(n, content, list, old)
  if type(old) == 'table' then -- not a string, or out of memory: nothing was written
    out[#out + 1] = {n, 2, old.err}
    return true
  end
  local prior, own = revision(old), sub(ARGV[4 * n + 3], 2, 9)
  if prior == own then return false end -- a repeated call
  if old then call('SET', content, old, 'KEEPTTL') else call('DEL', content) end
  if prior ~= clean(own) then
    out[#out + 1] = {n, 1, old, known(state(list), warmth)}
  end
  return true
end

for n = 1, (#ARGV - 5) / 4 do
  local content, list, j = KEYS[2 * n - 1], KEYS[2 * n], 4 * n + 1
  if n <= marked then
    first(n, content, list, j)
  else
    -- The content is dirty, so the mark exists. Only marking writes restart the TTL: it saves the server work per
    -- write, and the TTL may start one hold before the last write.
    local old = try('SET', content, ARGV[j + 2], 'KEEPTTL', 'GET')
    if type(old) == 'string' and sub(old, 2, 9) == ARGV[j + 1] or not refused(n, content, list, old) then
      call('ZADD', list, ARGV[j + 3], ARGV[j + 4])
    end
  end
end
return out
