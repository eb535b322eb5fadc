/** A server of the test's own, for what a real one never answers. */

import { once } from 'node:events'
import { createServer, type Http2Server, type Http2Session } from 'node:http2'
import type { AddressInfo } from 'node:net'
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf'

const UNIMPLEMENTED = '12'
/** What stands before each message of gRPC. */
const FRAME_BYTES = 5

/** What a method answers. */
export interface Answer {
  name: string
  answer: (request: Uint8Array) => Uint8Array
}

/** What this unary method answers. */
export function answering<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  answer: (request: MessageShape<I>) => MessageInitShape<O>,
): Answer {
  return {
    name: method.name,
    answer: (request) =>
      toBinary(method.output, create(method.output, answer(fromBinary(method.input, request)))),
  }
}

/** Knows the methods that it is given, and no others. */
export class Fake {
  readonly #sessions = new Set<Http2Session>()
  /** The names of the methods that were called, in order. */
  readonly called: string[] = []

  private constructor(
    private readonly server: Http2Server,
    readonly address: string,
  ) {}

  static async start(...answers: Answer[]): Promise<Fake> {
    const server = createServer()
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const fake = new Fake(server, `127.0.0.1:${String(port)}`)
    server.on('session', (session) => {
      fake.#sessions.add(session)
    })
    server.on('stream', (stream, headers) => {
      const name = String(headers[':path']).split('/').at(-1) ?? ''
      fake.called.push(name)
      const known = answers.find((answer) => answer.name === name)
      stream.on('error', () => undefined)
      if (known === undefined) {
        const status = { 'content-type': 'application/grpc', 'grpc-status': UNIMPLEMENTED }
        stream.respond({ ':status': 200, ...status }, { endStream: true })
        return
      }
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => chunks.push(chunk))
      stream.on('end', () => {
        const message = known.answer(Buffer.concat(chunks).subarray(FRAME_BYTES))
        const frame = Buffer.alloc(FRAME_BYTES)
        frame.writeUInt32BE(message.length, 1)
        stream.respond(
          { ':status': 200, 'content-type': 'application/grpc' },
          { waitForTrailers: true },
        )
        stream.on('wantTrailers', () => {
          stream.sendTrailers({ 'grpc-status': '0' })
        })
        stream.end(Buffer.concat([frame, message]))
      })
    })
    return fake
  }

  close(): void {
    for (const session of this.#sessions) {
      session.destroy()
    }
    this.server.close()
  }
}
