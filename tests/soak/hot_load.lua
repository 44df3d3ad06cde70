-- For wrk: objects by rank, as `sizes.rank` has it.
-- Arguments after `--`: how many objects, the seed of this run.

dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "../../bench/report.lua")

local threads = 0
local objects

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  objects = tonumber(args[1])
  math.randomseed(tonumber(args[2]) * 1000 + number)
end

function request()
  local share = math.random()
  local rank = math.floor(objects ^ (share * share))
  return wrk.format(nil, "/hot/" .. rank)
end
