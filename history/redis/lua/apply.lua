-- Stores the records whose bases still stand, each with its place in the list and,
-- where asked for, a dirty mark, unless an older one stands.
--
-- KEYS: the content and the list of each write; in a cluster also what else may be
-- touched: the states of the users, the dirty marks, and perhaps the logs of changes.
-- ARGV: seconds that contents live; seconds that lists and users' states live; how many
-- milliseconds a user is warm, 0 for ever; how many of the writes get a mark, the first
-- ones; 1 where logs of changes may be touched; then for each write the eight bytes of its base, the value, the score and the
-- member. In place of a base that there is none there are zeros, behind them the user's pause
-- as it must be (since and until), up to when the type may have been cleared, and 1 where the user
-- must be complete. A write without a base, or on a clean one, is among the first.
--
-- Returns what came out differently: {n, 1, value, user's state} for a conflict,
-- {n, 2, error}, {n, 3} for a write that has to touch a log.
local KEYS, ARGV, call, try, sub, byte, type = KEYS, ARGV, redis.call, redis.pcall, string.sub, string.byte, type
local ttl, life, warmth, marked = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local refresh = life - 43200
local none = '\0\0\0\0\0\0\0\0'
local out, now = {}, nil
if marked > 0 then now = text(micros()) end

-- The keys of a user differ in the letter after the bucket, "{b0007}:".
local function state(list)
  return sub(list, 1, 8) .. 'u' .. sub(list, 10)
end

-- The revision that a content begins with.
local function revision(content)
  if content and #content > 8 and sub(content, 1, 1) == '\t' then return sub(content, 2, 9) end
  return none
end

local function clean(revision)
  return sub(revision, 1, 7) .. string.char(byte(revision, 8) % 128 + 128)
end

-- Whether what is known of a user refuses a write without a base.
local function refuses(list, knew, member)
  local u = call('HMGET', state(list), 'cleared', 'cleared:' .. string.match(member, '%d+$'), 'paused', 'resumed', 'low_watermark', 'warmed')
  local since, till, cleared, complete = string.match(knew, '^(%d+) (%d+) (%d+) (%d)$')
  if tonumber(cleared) < math.max(u[1] or 0, u[2] or 0) then return true end
  if tonumber(since) ~= tonumber(u[3] or 0) or tonumber(till) ~= tonumber(u[4] or 0) then return true end
  return complete == '1' and (u[5] ~= '0' or lapsed(u[6], warmth))
end

-- Lists and states outlive contents by a day, so that starting their lives anew
-- twice a day is enough.
local function renew(list)
  if call('TTL', list) < refresh then
    call('EXPIRE', list, life)
    keep(state(list), life)
  end
end

-- Makes an entry in the log of the user's changes, if there is one, and reports whether it could.
local function begins(list, member)
  if not call('HGET', state(list), 'log') then return true end
  if ARGV[5] == '0' then return false end
  local log = sub(list, 1, 8) .. 'l' .. sub(list, 10)
  local last = call('ZREVRANGE', log, 0, 0, 'WITHSCORES')[2]
  if last then call('ZADD', log, text(last + 1), member) end -- else it has expired
  return true
end

-- Looks first, and writes the mark before what it stands for: if the server stops in
-- between with an error, there is a mark too many and never one too few.
local function first(n, content, list, j)
  local base, own = sub(ARGV[j + 1], 1, 8), sub(ARGV[j + 2], 2, 9)
  local old = try('GETRANGE', content, 0, 8)
  if type(old) == 'table' then
    out[#out + 1] = {n, 2, old.err}
    return
  end
  local prior = revision(old)
  if prior == clean(own) then return end -- the same call once more, and archived since
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

-- Decides about a value that was put in place of another than its base.
local function refused(n, content, list, old)
  if type(old) == 'table' then -- not a string, or no memory: nothing was written
    out[#out + 1] = {n, 2, old.err}
    return true
  end
  local prior, own = revision(old), sub(ARGV[4 * n + 3], 2, 9)
  if prior == own then return false end -- the same call once more
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
    -- The key has a mark, because its content is dirty. A content's life starts
    -- anew with its mark: so much later than its last write as a hold is long, and the
    -- server has less to do for each write.
    local old = try('SET', content, ARGV[j + 2], 'KEEPTTL', 'GET')
    if type(old) == 'string' and sub(old, 2, 9) == ARGV[j + 1] or not refused(n, content, list, old) then
      call('ZADD', list, ARGV[j + 3], ARGV[j + 4])
    end
  end
end
return out
