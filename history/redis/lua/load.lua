-- Reads contents and the states of their users at one moment.
--
-- KEYS: the contents, then the users' states.
-- ARGV: how many contents.
--
-- Returns the contents, then the place of each state that is there among the
-- states, and what it holds.
local call, n = redis.call, tonumber(ARGV[1])
local out = {call('MGET', unpack(KEYS, 1, n))}
for i = n + 1, #KEYS do
  local state = call('HGETALL', KEYS[i])
  if #state > 0 then
    out[#out + 1] = i - n
    out[#out + 1] = state
  end
end
return out
