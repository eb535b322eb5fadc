/** The README's code and the example, run as they are written, by the package's own name. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Scene, scenario } from './harness/scene.js'
import { until } from './harness/until.js'

// From build/tests.
const PACKAGE = fileURLToPath(new URL('../../', import.meta.url))
// Within the package, so that it finds itself by its name.
const FOLDER = join(PACKAGE, '.readme')

/** The blocks of JavaScript, in order. */
function blocks(): string[] {
  const text = readFileSync(join(PACKAGE, 'README.md'), 'utf8')
  return [...text.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, code = '']) => code)
}

function run(file: string, scene: Scene) {
  const child = spawn(process.execPath, [file], {
    cwd: PACKAGE,
    env: { ...process.env, RDQ_SERVER: scene.server.address },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
  }
  const exited = once(child, 'exit')
  return {
    child,
    /** What it printed, once it ended in order. */
    ended: async () => {
      const [code] = (await exited) as [number | null]
      assert.equal(code, 0, `${file} ended with ${String(code)}:\n${output}`)
      return output
    },
  }
}

scenario('the README as written', async (scene) => {
  rmSync(FOLDER, { recursive: true, force: true })
  mkdirSync(FOLDER)
  const code = blocks()
  assert.ok(code.length >= 4, `${String(code.length)} blocks`)
  for (const [index, block] of code.entries()) {
    const file = join(FOLDER, `block-${String(index + 1)}.mjs`)
    writeFileSync(file, block)
    const { child, ended } = run(file, scene)
    try {
      if (block.includes('stopOnSignals')) {
        await until('it worked off what was produced', async () => {
          const [stats] = await scene.client.stats(['mail'])
          assert.equal(child.exitCode, null)
          return stats?.pending === 0 && stats.inFlight === 0 ? true : undefined
        })
        child.kill('SIGTERM')
      }
      await ended()
    } finally {
      child.kill('SIGKILL')
    }
  }
  const [stats] = await scene.client.stats(['mail'])
  assert.ok(stats && stats.succeeded >= 1)
})

scenario('the example as written', async (scene) => {
  const { child, ended } = run('examples/welcome.js', scene)
  try {
    assert.deepEqual((await ended()).trim().split('\n'), [
      'welcome-ada@example.com: SUCCEEDED after 2 attempts: sent to ada@example.com',
      'welcome-grace@example.com: SUCCEEDED after 2 attempts: sent to grace@example.com',
      'welcome-nobody: DEAD after 1 attempts: nobody is no address',
      'dead letter: welcome-nobody',
    ])
  } finally {
    child.kill('SIGKILL')
  }
})
