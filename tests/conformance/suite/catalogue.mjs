// Prints the tests that the suite's command-line client runs, as [{id, kind, name}]: argv[2] is the suite's folder.
import { pathToFileURL } from 'url'

const folder = pathToFileURL(process.argv[2] + '/')
const { default: suites } = await import(new URL('tests/index.mjs', folder))
const { default: surrogate } = await import(new URL('tests/surrogate-control.mjs', folder))

const tests = [...suites, surrogate]
  .flatMap(suite => suite.tests)
  .filter(test => test.browser_only !== true)
  .map(test => ({ id: test.id, kind: test.kind || 'required', name: test.name }))
console.log(JSON.stringify(tests))
