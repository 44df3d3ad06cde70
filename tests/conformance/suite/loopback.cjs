// Preloaded into the suite's origin server, which has no option for it: listen on the loopback address only.
'use strict'

const net = require('net')

const listen = net.Server.prototype.listen

net.Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port: Number(port), host: '127.0.0.1' }, ...rest)
}
