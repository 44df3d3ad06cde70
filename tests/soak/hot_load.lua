-- For wrk: objects by popularity, as `sizes.number_of` has it.
-- Arguments after `--`: how many objects, by how many ranks what is popular has moved on, the seed of this run.

dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "../../bench/report.lua")

local threads = 0
local objects
local moved
local made = {}

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  objects = tonumber(args[1])
  moved = tonumber(args[2])
  math.randomseed(tonumber(args[3]) * 1000 + number)
end

function request()
  local asked = (math.floor((1 - math.random()) ^ -2) - 1 + moved) % objects
  local text = made[asked]
  if not text then
    text = wrk.format(nil, "/hot/" .. asked)
    made[asked] = text
  end
  return text
end
