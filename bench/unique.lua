-- For wrk with one thread: no URL twice. The first argument after `--` tells this run's URLs from those of other runs.

dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")

local prefix
local count = 0

function init(args)
  prefix = wrk.path .. args[1] .. "/"
end

function request()
  count = count + 1
  return wrk.format(nil, prefix .. count)
end
