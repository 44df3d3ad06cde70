-- For wrk: after each answer a connection waits for a time that is drawn anew, of the mean in milliseconds that the first
-- argument after `--` says: many connections together then ask as independent clients do (a Poisson process), and not in
-- step, as they would if each waited equally long.

dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")

local mean = 0

function init(args)
  mean = tonumber(args[1])
  math.randomseed(os.time())
end

function delay()
  return math.floor(-mean * math.log(1 - math.random()) + 0.5)
end
