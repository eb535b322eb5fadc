/** What nearly every scenario begins with: a server, a client, workers that end with the test. */

import test, { type TestContext } from 'node:test'
import { RdqClient, type Task, type Worker, type WorkerOptions } from '../../src/index.js'
import type { ClaimedTask } from '../../src/proto.js'
import { claimOne } from './rival.js'
import { Proxy } from './proxy.js'
import { Server, TEST_TIMEOUT_MS } from './server.js'
import { until } from './until.js'
import { WithoutWork } from './without_work.js'

/** The queue of the tests that need only one. */
export const QUEUE = 'q'

/** A server and what is connected to it. */
export class Scene {
  readonly #closing: (() => Promise<void>)[] = []
  readonly #last: (() => void)[] = []

  private constructor(
    readonly test: TestContext,
    readonly server: Server,
    /** A client with a connection of its own straight to the server. */
    readonly client: RdqClient,
  ) {}

  static async start(test: TestContext): Promise<Scene> {
    const server = await Server.start(test)
    const scene = new Scene(test, server, new RdqClient(server.address))
    // The last of all, so that workers still reach the server.
    test.after(() => scene.client.close())
    return scene
  }

  /** Another client, closed at the end. */
  connect(address: string): RdqClient {
    const client = new RdqClient(address)
    this.#closing.push(() => client.close())
    return client
  }

  /** A proxy before the server, closed at the end. */
  async proxy(): Promise<Proxy> {
    const proxy = await Proxy.start(this.server.port)
    this.#last.push(() => {
      proxy.close()
    })
    return proxy
  }

  /** A front before the server that does not know `Work`, closed at the end. */
  async withoutWork(): Promise<WithoutWork> {
    const front = await WithoutWork.start(this.server.address)
    this.#last.push(() => {
      front.close()
    })
    return front
  }

  /** A worker that is started, and stopped at the end without grace. */
  work(options: Partial<WorkerOptions>, client: RdqClient = this.client): Worker {
    const worker = client.worker({ queues: [QUEUE], logger: quiet, ...options }).start()
    this.#closing.push(() => worker.stop({ graceMs: 0 }))
    return worker
  }

  async end(): Promise<void> {
    // The newest first: a worker before its client.
    for (const close of this.#closing.reverse()) {
      await close()
    }
    for (const close of this.#last) {
      close()
    }
  }

  /** Claims one task for somebody else; undefined if none is due. */
  claim(options: { leaseMs?: number; queue?: string } = {}): Promise<ClaimedTask | undefined> {
    return claimOne(this.server.address, { queue: QUEUE, ...options })
  }

  /** The task, once it has ended. */
  finished(id: string): Promise<Task> {
    return until(`${id} has ended`, async () => {
      const task = await this.client.get(id)
      return task.finishedAt === undefined ? undefined : task
    })
  }
}

const nothing = () => undefined
export const quiet = { debug: nothing, info: nothing, warn: nothing, error: nothing }

/** One scenario of clients/README.md, against a server of its own. */
export function scenario(name: string, run: (scene: Scene) => Promise<void>): void {
  void test(name, { timeout: TEST_TIMEOUT_MS }, async (context) => {
    const scene = await Scene.start(context)
    try {
      await run(scene)
    } finally {
      await scene.end()
    }
  })
}
