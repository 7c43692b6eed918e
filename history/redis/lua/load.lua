-- Reads contents and the states of users at one moment.
--
-- KEYS: the contents, then the users' states.
-- ARGV: how many contents; how many milliseconds a user is warm, 0 for ever.
--
-- Returns the contents, then the place of each state that is there among the
-- states, and what it holds.
local n = tonumber(ARGV[1])
local out = {n > 0 and redis.call('MGET', unpack(KEYS, 1, n)) or {}}
for i = n + 1, #KEYS do
  local state = known(KEYS[i], ARGV[2])
  if #state > 0 then
    out[#out + 1] = i - n
    out[#out + 1] = state
  end
end
return out
