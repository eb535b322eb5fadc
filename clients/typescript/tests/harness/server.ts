/** A real server, as a process, on a file and a port of its own. */

import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { RdqClient } from '../../src/index.js'
import { until } from './until.js'

// From build/tests/harness.
const ROOT = fileURLToPath(new URL('../../../../../', import.meta.url))
const RDQ = process.env['RDQ_BIN'] ?? join(ROOT, 'target/debug/rdq')
/** Lines of its log that a failure shows. */
const LINES_SHOWN = 40
/** A test that has not passed by then hangs. */
export const TEST_TIMEOUT_MS = 600_000

const running = new Set<ChildProcess>()
process.on('exit', () => {
  for (const child of running) {
    child.kill('SIGKILL')
  }
})

/** A server that is ended with its test. */
export class Server {
  readonly #folder = mkdtempSync(join(tmpdir(), 'rdq-ts-'))
  readonly #log: string[] = []
  #child: ChildProcess | undefined
  #port = 0

  /** Starts one, and waits until it serves. */
  static async start(test: TestContext): Promise<Server> {
    const server = new Server()
    test.after(async () => {
      await server.kill()
      rmSync(server.#folder, { recursive: true, force: true })
      if ((test as { passed?: boolean }).passed === false) {
        console.error(
          `--- the server's last lines\n${server.#log.slice(-LINES_SHOWN).join('\n')}\n---`,
        )
      }
    })
    for (let tries = 0; tries < 5; tries += 1) {
      server.#port = await freePort()
      if (await server.#serves()) {
        return server
      }
    }
    throw new Error(`the server did not start:\n${server.#log.join('\n')}`)
  }

  get port(): number {
    return this.#port
  }

  /** As a client takes it. */
  get address(): string {
    return `127.0.0.1:${String(this.#port)}`
  }

  /** Kills it, as `kill -9` does. */
  async kill(): Promise<void> {
    const child = this.#child
    this.#child = undefined
    if (child?.exitCode === null && child.signalCode === null) {
      const exited = once(child, 'exit')
      child.kill('SIGKILL')
      await exited
    }
  }

  /** Tells it to end, and waits until it did. */
  async terminate(): Promise<void> {
    const child = this.#child
    assert.ok(child?.exitCode === null && child.signalCode === null)
    this.#child = undefined
    const exited = once(child, 'exit')
    child.kill('SIGTERM')
    assert.deepEqual(await exited, [0, null])
  }

  /** Starts it again, on its port and file, after it ended. */
  async restart(): Promise<void> {
    await until('the server starts again', async () => ((await this.#serves()) ? true : undefined))
  }

  /** Runs the program; false if it ended instead of serving. */
  async #serves(): Promise<boolean> {
    const child = spawn(
      RDQ,
      [
        ...['serve', '--listen', this.address, '--http', '127.0.0.1:0'],
        ...['--storage', `sqlite:${join(this.#folder, 'rdq.db')}`, '--shutdown-grace', '1h'],
      ],
      { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, NO_COLOR: '1' } },
    )
    this.#child = child
    running.add(child)
    child.on('exit', () => {
      running.delete(child)
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#log.push(...text.split('\n').filter((line) => line !== ''))
    })
    await using client = new RdqClient(this.address, { deadlineMs: 500 })
    return await until('the server serves', async () => {
      if (child.exitCode !== null || child.signalCode !== null) {
        return false
      }
      return client.capabilities().then(
        () => true,
        () => undefined,
      )
    })
  }
}

/**
 * A port that nobody has now. Below those that the system gives to outgoing connections, so that it is still free when
 * a killed server wants it back.
 */
let nextOffset = (process.pid * 37) % 12_000
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 20_000 + nextOffset
    nextOffset = (nextOffset + 1) % 12_000
    const listener = createServer()
    const isFree = await new Promise<boolean>((resolve) => {
      listener.once('error', () => {
        resolve(false)
      })
      listener.listen(port, '127.0.0.1', () => {
        resolve(true)
      })
    })
    if (isFree) {
      listener.close()
      await once(listener, 'close')
      return port
    }
  }
}
