/** A real server behind a front that does not know `Work`, as an older server or a simple gateway would not. */

import { once } from 'node:events'
import { connect, constants, createServer, type Http2Server } from 'node:http2'
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http'
import type { Http2Session } from 'node:http2'
import { freePort } from './server.js'

const UNIMPLEMENTED = '12'

/** Passes every call on but `Work`. */
export class WithoutWork {
  readonly #sessions = new Set<Http2Session>()
  #refused = 0

  private constructor(
    private readonly server: Http2Server,
    readonly address: string,
  ) {}

  /** How often `Work` was called. */
  get refused(): number {
    return this.#refused
  }

  static async start(target: string): Promise<WithoutWork> {
    const port = await freePort()
    const server = createServer()
    const front = new WithoutWork(server, `127.0.0.1:${String(port)}`)
    server.on('session', (session) => {
      front.#sessions.add(session)
      const upstream = connect(`http://${target}`)
      front.#sessions.add(upstream)
      upstream.on('error', () => {
        session.destroy()
      })
      session.on('close', () => {
        upstream.destroy()
      })
      session.on('stream', (stream, headers) => {
        stream.on('error', () => undefined)
        if (headers[':path']?.endsWith('/Work') === true) {
          front.#refused += 1
          const answer = { 'content-type': 'application/grpc', 'grpc-status': UNIMPLEMENTED }
          stream.respond({ ':status': 200, ...answer }, { endStream: true })
          return
        }
        const call = upstream.request(headers, { endStream: false })
        let trailers: OutgoingHttpHeaders = {}
        call.on('error', () => {
          stream.close(constants.NGHTTP2_INTERNAL_ERROR)
        })
        call.on('trailers', (received: IncomingHttpHeaders) => {
          trailers = received
        })
        call.on('response', (received) => {
          stream.respond(received, { waitForTrailers: true })
          stream.on('wantTrailers', () => {
            stream.sendTrailers(trailers)
          })
          call.pipe(stream)
        })
        stream.on('close', () => {
          call.close(constants.NGHTTP2_CANCEL)
        })
        stream.pipe(call)
      })
    })
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
    return front
  }

  close(): void {
    for (const session of this.#sessions) {
      session.destroy()
    }
    this.server.close()
  }
}
