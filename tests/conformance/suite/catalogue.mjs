// Prints the tests that the suite's command-line client runs, as [{id, kind, name}]: argv[2] is the folder above tests/.
import { existsSync } from 'fs'
import { pathToFileURL } from 'url'

const folder = pathToFileURL(process.argv[2] + '/')
const suites = [...(await import(new URL('tests/index.mjs', folder))).default]
const apart = new URL('tests/surrogate-control.mjs', folder) // edition 0.4.5's client adds it to its index
if (existsSync(apart)) suites.push((await import(apart)).default)

const tests = suites
  .flatMap(suite => suite.tests)
  .filter(test => test.browser_only !== true)
  .map(test => ({ id: test.id, kind: test.kind || 'required', name: test.name }))
console.log(JSON.stringify(tests))
