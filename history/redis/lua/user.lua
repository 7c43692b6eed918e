-- What the scripts know of a user's state; it stands before each of them.

-- Between when nothing is recorded, zeros for never. It lasts while the first is later.
local function pause(state)
  local p = redis.call('HMGET', state, 'paused', 'resumed')
  return tonumber(p[1] or 0), tonumber(p[2] or 0)
end

-- A state has a life unless recording is off: nothing would renew it then.
local function keep(state, life)
  local since, till = pause(state)
  if since > till then redis.call('PERSIST', state) else redis.call('EXPIRE', state, life) end
end

-- Gives each record of a list another revision, whose eight bytes stand after the first.
local function renumber(list, revision)
  local contents = string.sub(list, 1, 8) .. 'c:' .. string.sub(list, 11) .. ':'
  for _, member in ipairs(redis.call('ZRANGE', list, 0, -1)) do
    if redis.call('GETRANGE', contents .. member, 0, 0) == '\t' then
      redis.call('SETRANGE', contents .. member, 1, revision)
    end
  end
end

-- Marks a user's own state dirty and returns the mark, a new one also when the clock
-- stood still or went back.
local function markuser(dirty, uid)
  local t, key = redis.call('TIME'), uid .. '/*'
  local mark = t[1] * 1000000 + t[2]
  if redis.call('ZADD', dirty, 'GT', 'CH', string.format('%.0f', mark), key) == 0 then
    mark = redis.call('ZSCORE', dirty, key) + 1
    redis.call('ZADD', dirty, string.format('%.0f', mark), key)
  end
  return mark
end

