-- Reads contents and users' states atomically.
--
-- KEYS: contents, then users' states.
-- ARGV: number of contents; warm period (ms), 0 for ever.
--
-- Returns the contents, then for each existing state its index among the states and its fields.
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
