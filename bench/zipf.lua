-- For wrk with one thread: keys by Zipf's law. Arguments after `--`: how many keys, the exponent, a seed.

dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")

local requests = {}
local sums = {}
local keys = 0

function init(args)
  keys = tonumber(args[1])
  local exponent = tonumber(args[2])
  math.randomseed(tonumber(args[3]))
  local sum = 0
  for key = 1, keys do
    sum = sum + key ^ -exponent
    sums[key] = sum
    requests[key] = wrk.format(nil, wrk.path .. key)
  end
end

function request()
  local wanted = math.random() * sums[keys]
  local low, high = 1, keys
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sums[middle] < wanted then
      low = middle + 1
    else
      high = middle
    end
  end
  return requests[low]
end
