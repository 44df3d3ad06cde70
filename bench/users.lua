-- For wrk with one thread: the requests of many users, each named by a header.

dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")

local USERS = 1000

local requests = {}
local count = 0

function init(args)
  for user = 1, USERS do
    requests[user] = wrk.format(nil, nil, { ["Host"] = wrk.headers["Host"], ["x-user-id"] = "user-" .. user })
  end
end

function request()
  count = count % USERS + 1
  return requests[count]
end
