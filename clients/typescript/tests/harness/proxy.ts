/** A TCP proxy before a server, which can lose answers and go silent. */

import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { freePort } from './server.js'

interface Pair {
  down: Socket
  up: Socket
}

/** Passes everything on, until it is told otherwise. */
export class Proxy {
  readonly #pairs = new Set<Pair>()
  readonly #target: number
  #listener: Server | undefined
  #port = 0
  #losesAnswers = false
  #isSilent = false

  private constructor(target: number) {
    this.#target = target
  }

  static async start(target: number): Promise<Proxy> {
    const proxy = new Proxy(target)
    proxy.#port = await freePort()
    const listener = createServer((down) => {
      proxy.#accept(down)
    })
    proxy.#listener = listener
    listener.listen(proxy.#port, '127.0.0.1')
    await once(listener, 'listening')
    return proxy
  }

  get address(): string {
    return `127.0.0.1:${String(this.#port)}`
  }

  /** From now on requests arrive, and their answers do not. */
  loseAnswers(): void {
    this.#losesAnswers = true
  }

  /** From now on nothing passes, in either direction; connections stay open, and new ones are accepted. */
  goSilent(): void {
    this.#isSilent = true
  }

  /** Passes everything again. What was lost stays lost, so the connections of before are cut. */
  heal(): void {
    this.#losesAnswers = false
    this.#isSilent = false
    this.cut()
  }

  /** Ends the connections. */
  cut(): void {
    for (const { down, up } of this.#pairs) {
      down.destroy()
      up.destroy()
    }
    this.#pairs.clear()
  }

  close(): void {
    this.#isSilent = false
    this.cut()
    this.#listener?.close()
  }

  #accept(down: Socket): void {
    const pair = { down, up: connect(this.#target, '127.0.0.1') }
    const { up } = pair
    this.#pairs.add(pair)
    down.setNoDelay(true)
    up.setNoDelay(true)
    const end = () => {
      // A silent network does not tell of ends either.
      if (!this.#isSilent) {
        this.#pairs.delete(pair)
        down.destroy()
        up.destroy()
      }
    }
    for (const socket of [down, up]) {
      socket.on('error', end)
      socket.on('close', end)
    }
    down.on('data', (bytes) => {
      if (!this.#isSilent) up.write(bytes)
    })
    up.on('data', (bytes) => {
      if (!this.#isSilent && !this.#losesAnswers) down.write(bytes)
    })
  }
}
