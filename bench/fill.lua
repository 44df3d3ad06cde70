-- For wrk with one thread: keys from the one that the first argument after `--` names down to 1, and then 1 again.

dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")

local key = 0

function init(args)
  key = tonumber(args[1]) + 1
end

function request()
  key = math.max(key - 1, 1)
  return wrk.format(nil, wrk.path .. key)
end
