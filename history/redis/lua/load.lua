-- Reads contents and the states of their users at one moment.
--
-- KEYS: the contents, then the users' states.
-- ARGV: how many contents.
--
-- Returns the contents, then each state.
local n = tonumber(ARGV[1])
local out = {redis.call('MGET', unpack(KEYS, 1, n))}
for i = n + 1, #KEYS do
  out[#out + 1] = redis.call('HGETALL', KEYS[i])
end
return out
