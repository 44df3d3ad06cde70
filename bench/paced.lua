-- For wrk: after each answer a connection waits, so many milliseconds as the first argument after `--` says.

dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")

local pause = 0

function init(args)
  pause = tonumber(args[1])
end

function delay()
  return pause
end
