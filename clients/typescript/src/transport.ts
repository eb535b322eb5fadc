/** The calls of gRPC, by the generated descriptions of the methods. It knows no rdq but the errors. */

import {
  type DescMessage,
  type DescMethodBiDiStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf'
import {
  type CallOptions as GrpcCallOptions,
  type ChannelOptions,
  Client,
  ChannelCredentials,
  type ClientDuplexStream,
  type ClientReadableStream,
  Metadata,
  type ServiceError,
  type StatusObject,
} from '@grpc/grpc-js'
import { Code, errorOf, errorOfStatus, type RdqError } from './errors.js'

/** Certificates, as PEM. */
export interface TlsOptions {
  /** Who may have signed the server's certificate; the system's authorities if unset. */
  ca?: Uint8Array | string
  /** The client's certificate chain. */
  cert?: Uint8Array | string
  /** The key of the client's certificate. */
  key?: Uint8Array | string
}

/** How the server is reached. */
export interface ConnectionOptions {
  /** Encrypts the connection; also on with an `https://` address. */
  tls?: boolean | TlsOptions
  /** Sent with each call, `authorization` for instance. */
  callHeaders?: Readonly<Record<string, string>>
}

/** What becomes of a stream. */
export interface StreamEvents<O> {
  message(message: O): void
  /** Called once; without an error, the server ended it in order. */
  end(error: RdqError | undefined): void
}

/** The sending side of a stream. */
export interface OpenStream<I> {
  send(message: I): void
  /** Says that nothing more is sent. What the server still has to say arrives. */
  closeSend(): void
  cancel(): void
}

const CHANNEL_OPTIONS: ChannelOptions = {
  // A dead peer is found while calls are open, not after the minutes that TCP takes.
  'grpc.keepalive_time_ms': 20_000,
  'grpc.keepalive_timeout_ms': 10_000,
  // Answers are at most 3.5 MiB.
  'grpc.max_receive_message_length': 16 * 1024 * 1024,
  // Repeating is decided in one place: retry.ts.
  'grpc.enable_retries': 0,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1_000,
  'grpc.service_config_disable_resolution': 1,
  // A connection of its own for each transport, so that a worker's stream shares none with other calls.
  'grpc.use_local_subchannel_pool': 1,
  'grpc.primary_user_agent': 'rdq-typescript/0.1.0',
}

/** One connection to a server, made when it is needed, and made again. */
export class Transport {
  readonly #target: string
  readonly #credentials: ChannelCredentials
  readonly #headers: Metadata
  #client: Client
  #isClosed = false

  /** @throws TypeError if the address is neither `HOST:PORT` nor a `http://` or `https://` URL. */
  constructor(
    private readonly address: string,
    private readonly options: ConnectionOptions,
  ) {
    const { target, isTls } = parseAddress(address)
    this.#target = target
    this.#credentials = credentialsOf(options.tls ?? isTls)
    this.#headers = new Metadata()
    for (const [name, value] of Object.entries(options.callHeaders ?? {})) {
      this.#headers.set(name, value)
    }
    this.#client = this.#connect()
  }

  #connect(): Client {
    return new Client(this.#target, this.#credentials, CHANNEL_OPTIONS)
  }

  /** Another connection to the same server. */
  fork(): Transport {
    return new Transport(this.address, this.options)
  }

  /** The next call goes by a new connection; those under way end on theirs. */
  renew(): void {
    if (!this.#isClosed) {
      this.#client.close()
      this.#client = this.#connect()
    }
  }

  close(): void {
    this.#isClosed = true
    this.#client.close()
  }

  /** One try of a call. Rejects with an RdqError, or the signal's reason. */
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageShape<I>,
    tryMs: number,
    signal?: AbortSignal,
  ): Promise<MessageShape<O>> {
    if (this.#isClosed) {
      return Promise.reject(closed())
    }
    return new Promise((resolve, reject) => {
      const abort = () => {
        call.cancel()
        reject(signal?.reason as Error)
      }
      const call = this.#client.makeUnaryRequest<MessageShape<I>, MessageShape<O>>(
        pathOf(method),
        serializer(method.input),
        deserializer(method.output),
        request,
        this.#headers,
        { deadline: Date.now() + tryMs },
        (error, response) => {
          signal?.removeEventListener('abort', abort)
          if (error !== null) {
            reject(errorOfStatus(error))
          } else if (response === undefined) {
            reject(
              errorOfStatus({
                code: Code.INTERNAL,
                details: 'no answer',
                metadata: new Metadata(),
              }),
            )
          } else {
            resolve(response)
          }
        },
      )
      signal?.addEventListener('abort', abort)
    })
  }

  /** One try of a call whose answer is many messages. Ending the iteration ends the call. */
  async *serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageShape<I>,
    signal?: AbortSignal,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    if (this.#isClosed) {
      throw closed()
    }
    const call = this.#openServerStream(method, request)
    const abort = () => {
      call.cancel()
    }
    signal?.addEventListener('abort', abort)
    try {
      yield* call as AsyncIterable<MessageShape<O>>
    } catch (error) {
      signal?.throwIfAborted()
      throw isServiceError(error) ? errorOfStatus(error) : error
    } finally {
      signal?.removeEventListener('abort', abort)
      call.cancel()
    }
  }

  /** The same, told by events. */
  subscribe<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageShape<I>,
    events: StreamEvents<MessageShape<O>>,
  ): { cancel(): void } {
    const call = this.#openServerStream(method, request)
    listen(call, events)
    return call
  }

  /** A call with a stream in each direction. */
  bidi<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    events: StreamEvents<MessageShape<O>>,
  ): OpenStream<MessageShape<I>> {
    const call: ClientDuplexStream<
      MessageShape<I>,
      MessageShape<O>
    > = this.#client.makeBidiStreamRequest(
      pathOf(method),
      serializer(method.input),
      deserializer(method.output),
      this.#headers,
    )
    listen(call, events)
    return {
      send: (message) => {
        call.write(message)
      },
      closeSend: () => {
        call.end()
      },
      cancel: () => {
        call.cancel()
      },
    }
  }

  #openServerStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageShape<I>,
    options: GrpcCallOptions = {},
  ): ClientReadableStream<MessageShape<O>> {
    return this.#client.makeServerStreamRequest<MessageShape<I>, MessageShape<O>>(
      pathOf(method),
      serializer(method.input),
      deserializer(method.output),
      request,
      this.#headers,
      options,
    )
  }
}

function listen<O>(call: ClientReadableStream<O>, events: StreamEvents<O>): void {
  call.on('data', (message: O) => {
    events.message(message)
  })
  call.on('error', () => {
    // The status says it too, and comes in any case.
  })
  call.on('status', (status: StatusObject) => {
    // What was read before it is handed out first.
    setImmediate(() => {
      events.end(isOk(status) ? undefined : errorOfStatus(status))
    })
  })
}

function closed(): RdqError {
  return errorOf({ code: Code.CANCELLED, message: 'the client is closed', outcomeUnknown: false })
}

function isOk({ code }: { code: number }): boolean {
  return code === Code.OK
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && 'code' in error && 'details' in error && 'metadata' in error
}

function pathOf(method: { name: string; parent: { typeName: string } }): string {
  return `/${method.parent.typeName}/${method.name}`
}

function serializer<I extends DescMessage>(schema: I): (message: MessageShape<I>) => Buffer {
  return (message) => {
    const bytes = toBinary(schema, message)
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }
}

function deserializer<O extends DescMessage>(schema: O): (bytes: Buffer) => MessageShape<O> {
  return (bytes) => fromBinary(schema, bytes)
}

function credentialsOf(tls: boolean | TlsOptions): ChannelCredentials {
  if (tls === false) {
    return ChannelCredentials.createInsecure()
  }
  const { ca, cert, key } = tls === true ? {} : tls
  return ChannelCredentials.createSsl(pem(ca), pem(key), pem(cert))
}

function pem(text: Uint8Array | string | undefined): Buffer | null {
  if (text === undefined) {
    return null
  }
  return typeof text === 'string' ? Buffer.from(text) : Buffer.from(text)
}

/** What gRPC dials. */
export function parseAddress(address: string): { target: string; isTls: boolean } {
  const match = /^(?:(https?):\/\/)?((?:\[[0-9A-Fa-f:.]+\]|[^/:?#[\]@\s]+):\d{1,5})\/?$/.exec(
    address,
  )
  const target = match?.[2]
  if (target === undefined) {
    throw new TypeError(
      `${JSON.stringify(address)} is not HOST:PORT, http://HOST:PORT or https://HOST:PORT`,
    )
  }
  return { target, isTls: match?.[1] === 'https' }
}
