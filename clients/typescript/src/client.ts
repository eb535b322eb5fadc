/** The caller's half: what produces tasks, and what an operator asks. */

import {
  create,
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf'
import { Backoff } from './backoff.js'
import { cut, ENQUEUE_BOUNDS } from './batches.js'
import { Code, errorOf, errorOfItem, RdqError } from './errors.js'
import { QueueService } from './gen/rdq/v1/queue_service_pb.js'
import { type Task as TaskMessage, TaskSchema } from './gen/rdq/v1/task_pb.js'
import {
  DlqFilterSchema,
  Durability as DurabilityEnum,
  type EnqueueResult as EnqueueResultMessage,
  type Selector as SelectorMessage,
  SelectorSchema,
  TaskService,
} from './gen/rdq/v1/task_service_pb.js'
import { Lock, type LockOptions } from './lock.js'
import { OutboxRelay, type OutboxRelayOptions } from './outbox_relay.js'
import { type Page, Pages } from './pages.js'
import {
  fromQueueMessage,
  fromStatsMessage,
  type Queue,
  type QueueConfig,
  type QueueStats,
  toQueueConfigMessage,
} from './queue.js'
import {
  BACKOFF_FIRST_MS,
  BACKOFF_MAX_MS,
  type CallOptions,
  DEADLINE_MS,
  retrying,
} from './retry.js'
import { sleep } from './sleep.js'
import { Subscription, type SubscriptionOptions } from './subscription.js'
import {
  fromStatus,
  fromTaskMessage,
  type Task,
  type TaskInput,
  type TaskStatus,
  toStatus,
  toTaskMessage,
} from './task.js'
import { withTraceHeaders } from './telemetry.js'
import { now, toDuration, toTimestamp } from './time.js'
import { type ConnectionOptions, Transport } from './transport.js'
import { Worker, type WorkerOptions } from './worker/worker.js'

/** How a client reaches the server, and how long its calls may take. */
export interface ClientOptions extends ConnectionOptions {
  /** How long a call may take in total, repeated tries included, in milliseconds; 30 s if unset. */
  deadlineMs?: number
}

/** The answer to an admitted task. */
export interface Enqueued {
  /** The task's id: the caller's, or the one that the client chose. */
  id: string
  /** Whether this call admitted it; false if it was there already. */
  created: boolean
  status: TaskStatus
}

/** What became of one task of many. */
export type EnqueueResult = ({ ok: true } & Enqueued) | { ok: false; id: string; error: RdqError }

/** Which dead letters; what is set must hold, all of it. */
export interface DlqFilter {
  /** The exact type of the error of the final attempt. */
  errorType?: string
  handlerRef?: string
  /** Dead since this instant, inclusive. */
  deadLetteredFrom?: Date
  /** Dead before this instant, exclusive. */
  deadLetteredTo?: Date
}

/** Which dead letters to act on: some by id, those that match, or explicitly all. */
export type Selector = { ids: readonly string[] } | { filter: DlqFilter } | { all: true }

/** How a list is read. */
export interface ListOptions extends CallOptions {
  /** Items on a page, up to 1,000; 50 if unset. */
  pageSize?: number
}

/** Which tasks are listed, and how. */
export interface TaskListOptions extends ListOptions {
  /** Only tasks in this status. */
  status?: TaskStatus
  /** With the history, stacks and details included. */
  includeAttempts?: boolean
}

/** Which dead letters are listed, and how. */
export interface DlqListOptions extends ListOptions {
  filter?: DlqFilter
  /** With the history, stacks and details included. */
  includeAttempts?: boolean
}

/** How `purge` goes about it. Its deadline ends with the first count: after that it takes what it takes. */
export interface PurgeOptions extends CallOptions {
  /** Count, and change nothing. */
  dryRun?: boolean
  /** Told the running count. */
  onProgress?: (count: number) => void
}

/** How `redrive` goes about it. */
export interface RedriveOptions extends PurgeOptions {
  /** Spread the due times evenly over so long, in milliseconds. Not together with `ratePerSecond`. */
  spreadOverMs?: number
  /** Space the due times to so many tasks a second. */
  ratePerSecond?: number
}

/** What a server and its storage offer. */
export interface Capabilities {
  contractVersion: string
  serverVersion: string
  /** What an acknowledged write survives. */
  durability: 'NONE' | 'PROCESS' | 'POWER_CUT' | 'UNKNOWN'
  capabilities: string[]
}

/**
 * A connection to an rdq server: it enqueues tasks, makes workers, and has the operator's calls. One for a process is
 * enough. Every call is repeated while that may help, and rejects with an {@link RdqError} in the end.
 */
export class RdqClient implements AsyncDisposable {
  readonly #transport: Transport
  readonly #deadlineMs: number
  readonly #workers = new Set<Worker>()
  #isClosed = false

  /**
   * @param address `HOST:PORT`, or a URL `http://HOST:PORT` or `https://HOST:PORT`. The connection is made by the
   * first call.
   * @throws TypeError if the address is none of these.
   */
  constructor(address: string, options: ClientOptions = {}) {
    this.#transport = new Transport(address, options)
    this.#deadlineMs = options.deadlineMs ?? DEADLINE_MS
  }

  /** Ends the client's workers in order, then the connection. */
  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...this.#workers].map((worker) => worker.stop()))
    this.#transport.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /**
   * A worker that takes tasks of these queues, once it is started.
   *
   * @throws RangeError if an option is out of range; Error if the client is closed.
   */
  worker(options: WorkerOptions): Worker {
    if (this.#isClosed) {
      throw new Error('the client is closed')
    }
    const worker: Worker = new Worker(this.#transport, options, () => this.#workers.delete(worker))
    this.#workers.add(worker)
    return worker
  }

  /**
   * Admits one task. It has its id before the first try, so a repetition admits nothing twice.
   *
   * @throws IdConflictError if the id is taken in another queue; PayloadTooLargeError; InvalidArgumentError and others.
   */
  async enqueue(input: TaskInput, options: CallOptions = {}): Promise<Enqueued> {
    const task = toTraced(input)
    const answer = await this.call(TaskService.method.enqueue, { task }, options)
    return { id: answer.id, created: answer.created, status: fromStatus(answer.status) }
  }

  /**
   * Admits many tasks, in requests of at most 1,000 tasks and 3 MiB, and answers for each in the order of the input.
   * One that is refused does not hold back the others; refused for now, it is sent again. The deadline is that of all
   * requests together. A request that fails is the error of all its tasks; when the server cannot be reached within the
   * deadline, what is left is not sent, and says so.
   */
  async enqueueMany(
    inputs: Iterable<TaskInput>,
    options: CallOptions = {},
  ): Promise<EnqueueResult[]> {
    const tasks = Array.from(inputs, toTraced)
    const end = now() + (options.deadlineMs ?? this.#deadlineMs)
    const backoff = new Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
    const results = await this.#enqueueOnce(tasks, end, options)
    for (;;) {
      const again = [...results.keys()].filter((index) => isRefusedForNow(results[index]))
      const waitMs = backoff.nextMs()
      if (again.length === 0 || now() + waitMs >= end) {
        return results.map(({ result }) => result)
      }
      await sleep(waitMs, options.signal)
      options.signal?.throwIfAborted()
      const left = again.flatMap((index) => tasks[index] ?? [])
      const repeated = await this.#enqueueOnce(left, end, options)
      for (const [position, index] of again.entries()) {
        const [before, after] = [results[index], repeated[position]]
        if (before !== undefined && after !== undefined) {
          results[index] = laterOf(before, after)
        }
      }
    }
  }

  /** Each task in one request, and the answers in their order. */
  async #enqueueOnce(
    tasks: TaskMessage[],
    end: number,
    options: CallOptions,
  ): Promise<EnqueueTry[]> {
    const tries: EnqueueTry[] = []
    const failed = (batch: TaskMessage[], error: RdqError) => {
      tries.push(
        ...batch.map(({ id }) => ({ result: { ok: false as const, id, error }, isAnswer: false })),
      )
    }
    let unreachable: RdqError | undefined
    for (const batch of cut(tasks, (task) => toBinary(TaskSchema, task).length, ENQUEUE_BOUNDS)) {
      if (unreachable !== undefined) {
        failed(batch, notSent(unreachable))
        continue
      }
      try {
        const { results } = await this.call(
          TaskService.method.enqueueBatch,
          { tasks: batch },
          { ...options, deadlineMs: end - now() },
        )
        tries.push(
          ...batch.map((task, index) => ({
            result: toEnqueueResult(task, results[index]),
            isAnswer: true,
          })),
        )
      } catch (error) {
        if (!(error instanceof RdqError)) {
          throw error
        }
        failed(batch, error)
        if (error.code === Code.UNAVAILABLE || error.code === Code.DEADLINE_EXCEEDED) {
          unreachable = error
        }
      }
    }
    return tries
  }

  /**
   * Reads one task in any status, with its whole history.
   *
   * @throws NotFoundError
   */
  async get(id: string, options: CallOptions = {}): Promise<Task> {
    const { task } = await this.call(TaskService.method.get, { id }, options)
    return fromTaskMessage(required(task))
  }

  /** Tasks of a queue, newest first. */
  list(queue: string, options: TaskListOptions = {}): Pages<Task> {
    return new Pages(async (pageToken) => {
      const request: MessageInitShape<typeof TaskService.method.list.input> = {
        queue,
        pageToken,
        includeAttempts: options.includeAttempts ?? false,
        ...pageSize(options),
      }
      if (options.status !== undefined) request.status = toStatus(options.status)
      const answer = await this.call(TaskService.method.list, request, options)
      return page(answer.tasks.map(fromTaskMessage), answer.nextPageToken)
    })
  }

  /**
   * Ends a task that is not finished. Whoever holds it is told. Of a finished task nothing changes, and the answer is
   * its status.
   *
   * @throws NotFoundError
   */
  async cancel(
    id: string,
    options: CallOptions = {},
  ): Promise<{ cancelled: boolean; status: TaskStatus }> {
    const answer = await this.call(TaskService.method.cancel, { id }, options)
    return { cancelled: answer.cancelled, status: fromStatus(answer.status) }
  }

  /** Dead letters of a queue, newest first. */
  dlqList(queue: string, options: DlqListOptions = {}): Pages<Task> {
    return new Pages(async (pageToken) => {
      const request: MessageInitShape<typeof TaskService.method.dlqList.input> = {
        queue,
        pageToken,
        includeAttempts: options.includeAttempts ?? false,
        ...pageSize(options),
      }
      if (options.filter !== undefined) request.filter = toFilterMessage(options.filter)
      const answer = await this.call(TaskService.method.dlqList, request, options)
      return page(answer.tasks.map(fromTaskMessage), answer.nextPageToken)
    })
  }

  /**
   * Makes dead letters due again, and answers how many (with `dryRun`: how many it would).
   *
   * @throws RdqError whose `count` says how many there were before it failed.
   */
  redrive(queue: string, selector: Selector, options: RedriveOptions = {}): Promise<number> {
    const request: MessageInitShape<typeof TaskService.method.redrive.input> = {
      queue,
      selector: toSelectorMessage(selector),
      dryRun: options.dryRun ?? false,
    }
    if (options.spreadOverMs !== undefined) {
      request.spreadOver = toDuration(options.spreadOverMs, 'spreadOverMs')
    }
    if (options.ratePerSecond !== undefined) request.ratePerSecond = options.ratePerSecond
    return this.#counted(TaskService.method.redrive, request, options)
  }

  /**
   * Removes dead letters for good, and answers how many (with `dryRun`: how many it would).
   *
   * @throws RdqError whose `count` says how many there were before it failed.
   */
  purge(queue: string, selector: Selector, options: PurgeOptions = {}): Promise<number> {
    const request: MessageInitShape<typeof TaskService.method.purge.input> = {
      queue,
      selector: toSelectorMessage(selector),
      dryRun: options.dryRun ?? false,
    }
    return this.#counted(TaskService.method.purge, request, options)
  }

  /** Counts of these queues, in this order; of all queues, by name, if none is named. */
  async stats(queues: readonly string[] = [], options: CallOptions = {}): Promise<QueueStats[]> {
    const answer = await this.call(TaskService.method.stats, { queues: [...queues] }, options)
    return answer.queues.map(fromStatsMessage)
  }

  /** Stores the configuration of a queue, in place of what was stored. */
  async putQueue(name: string, config: QueueConfig, options: CallOptions = {}): Promise<Queue> {
    const request = { name, config: toQueueConfigMessage(config) }
    const { queue } = await this.call(QueueService.method.putQueue, request, options)
    return fromQueueMessage(required(queue))
  }

  /**
   * Reads the configuration of a queue.
   *
   * @throws QueueNotFoundError if the server demands declaration and there is none.
   */
  async getQueue(name: string, options: CallOptions = {}): Promise<Queue> {
    const { queue } = await this.call(QueueService.method.getQueue, { name }, options)
    return fromQueueMessage(required(queue))
  }

  /** The queues that are configured or hold tasks, by name. */
  listQueues(options: ListOptions = {}): Pages<Queue> {
    return new Pages(async (pageToken) => {
      const request = { pageToken, ...pageSize(options) }
      const answer = await this.call(QueueService.method.listQueues, request, options)
      return page(answer.queues.map(fromQueueMessage), answer.nextPageToken)
    })
  }

  /**
   * Removes the stored configuration of a queue; answers whether there was one.
   *
   * @throws QueueNotEmptyError while the queue holds tasks, in any status.
   */
  async deleteQueue(name: string, options: CallOptions = {}): Promise<boolean> {
    return (await this.call(QueueService.method.deleteQueue, { name }, options)).existed
  }

  /** Stops claims from a queue; admission goes on. */
  async pauseQueue(name: string, options: CallOptions = {}): Promise<Queue> {
    const { queue } = await this.call(QueueService.method.pauseQueue, { name }, options)
    return fromQueueMessage(required(queue))
  }

  /** Lets claims go on. */
  async resumeQueue(name: string, options: CallOptions = {}): Promise<Queue> {
    const { queue } = await this.call(QueueService.method.resumeQueue, { name }, options)
    return fromQueueMessage(required(queue))
  }

  /** What the server and its storage offer. */
  async capabilities(options: CallOptions = {}): Promise<Capabilities> {
    const answer = await this.call(TaskService.method.getCapabilities, {}, options)
    const durability = DurabilityEnum[answer.durability] as keyof typeof DurabilityEnum | undefined
    return {
      contractVersion: answer.contractVersion,
      serverVersion: answer.serverVersion,
      durability: durability === undefined || durability === 'UNSPECIFIED' ? 'UNKNOWN' : durability,
      capabilities: answer.capabilities,
    }
  }

  /**
   * Any unary call of the contract, by its description in `@rdq/client/proto`, repeated like the others: so it must be
   * safe to repeat.
   */
  call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const message = create(method.input, request)
    return this.retried(
      (tryMs) => this.#transport.unary(method, message, tryMs, options.signal),
      options,
    )
  }

  /** @internal Makes a call of some kind, repeated like the others. */
  retried<T>(attempt: (tryMs: number) => Promise<T>, options: CallOptions): Promise<T> {
    return retrying(attempt, {
      deadlineMs: this.#deadlineMs,
      ...options,
      onTryTimeout: () => {
        this.#transport.renew()
      },
    })
  }

  /**
   * Any unary call of the contract, made once: for what is not safe to repeat, such as `TransactionService.method.commit`
   * of an event. With `outcomeUnknown` of its error it may have happened all the same.
   */
  callOnce<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const tryMs = options.deadlineMs ?? this.#deadlineMs
    return this.#transport.unary(method, create(method.input, request), tryMs, options.signal)
  }

  /** Any call of the contract whose answer is a stream, made once. Ending the iteration ends the call. */
  stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: { signal?: AbortSignal } = {},
  ): AsyncIterable<MessageShape<O>> {
    return this.#transport.serverStream(method, create(method.input, request), options.signal)
  }

  /** A consumer of a stream, once it is run, on a connection of its own. */
  subscription(options: SubscriptionOptions): Subscription {
    return new Subscription(this.#transport.fork(), this.#deadlineMs, options)
  }

  /**
   * Acquires a lock; undefined if somebody else holds it, for longer than `waitMs`.
   *
   * @throws RangeError if `ttlMs` is out of range.
   */
  lock(name: string, options: LockOptions = {}): Promise<Lock | undefined> {
    return Lock.acquire(this, name, options)
  }

  /** What carries messages of an outbox elsewhere. */
  outboxRelay(options: OutboxRelayOptions = {}): OutboxRelay {
    return new OutboxRelay(this, options)
  }

  /** A call that streams its running count; repeated until the first one. */
  #counted<I extends DescMessage>(
    method:
      | DescMethodServerStreaming<I, typeof TaskService.method.redrive.output>
      | DescMethodServerStreaming<I, typeof TaskService.method.purge.output>,
    request: MessageInitShape<I>,
    options: PurgeOptions,
  ): Promise<number> {
    const message = create(method.input, request)
    const deadlineMs = options.deadlineMs ?? this.#deadlineMs
    let count: number | undefined
    const attempt = async (tryMs: number): Promise<number> => {
      const late = new AbortController()
      const timer = setTimeout(() => {
        late.abort(noFirstCount(tryMs))
      }, tryMs)
      const signals = options.signal === undefined ? [late.signal] : [late.signal, options.signal]
      try {
        const counts = this.#transport.serverStream<I, DescMessage>(
          method,
          message,
          AbortSignal.any(signals),
        )
        let isDone = false
        for await (const progress of counts as AsyncIterable<{ count: bigint; done: boolean }>) {
          clearTimeout(timer)
          count = Number(progress.count)
          isDone = progress.done
          options.onProgress?.(count)
        }
        if (!isDone || count === undefined) {
          throw errorOf({
            code: Code.UNAVAILABLE,
            message: 'the stream ended early',
            outcomeUnknown: true,
          })
        }
        return count
      } catch (error) {
        if (error instanceof RdqError) {
          error.count = count
        }
        throw error
      } finally {
        clearTimeout(timer)
      }
    }
    // The first step of a large selection may take long, so a try has all that is left.
    return retrying(attempt, {
      ...options,
      deadlineMs,
      tryMaxMs: deadlineMs,
      mayRepeat: () => count === undefined,
    })
  }
}

function toTraced(input: TaskInput): TaskMessage {
  const headers = withTraceHeaders(input.headers)
  return toTaskMessage(headers === undefined ? input : { ...input, headers })
}

function toEnqueueResult(
  task: TaskMessage,
  result: EnqueueResultMessage | undefined,
): EnqueueResult {
  const { id } = task
  switch (result?.outcome.case) {
    case 'enqueued': {
      const { created, status } = result.outcome.value
      return { ok: true, id: result.outcome.value.id, created, status: fromStatus(status) }
    }
    case 'error':
      return { ok: false, id, error: errorOfItem(result.outcome.value) }
    default: {
      const message = 'the answer says nothing of this task'
      return {
        ok: false,
        id,
        error: errorOf({ code: Code.INTERNAL, message, outcomeUnknown: true }),
      }
    }
  }
}

/** What one request said of a task. */
interface EnqueueTry {
  result: EnqueueResult
  /** Whether the server said it, of this task alone; a failed request has been repeated already. */
  isAnswer: boolean
}

function isRefusedForNow(tried: EnqueueTry | undefined): boolean {
  if (tried === undefined || !tried.isAnswer || tried.result.ok) {
    return false
  }
  const { error } = tried.result
  return error.retryable || error.code === Code.ABORTED
}

/** What is to be told of a task that was sent again: an earlier try may have admitted it, whatever the last one says. */
function laterOf(before: EnqueueTry, after: EnqueueTry): EnqueueTry {
  if (!before.result.ok && !after.result.ok) {
    // One error may stand for many tasks: then it says of all what may be so of some.
    const { error } = after.result
    if (before.result.error.outcomeUnknown && error.retryable) {
      error.outcomeUnknown = true
    }
  }
  return after
}

function notSent(cause: RdqError): RdqError {
  const message = `not sent, since the request before it failed: ${cause.message}`
  return errorOf({ code: cause.code, reason: cause.reason, message, cause, outcomeUnknown: false })
}

function noFirstCount(tryMs: number): RdqError {
  const message = `no count within ${tryMs.toFixed(0)} ms`
  return errorOf({ code: Code.DEADLINE_EXCEEDED, message, outcomeUnknown: true })
}

function toFilterMessage(filter: DlqFilter): MessageInitShape<typeof DlqFilterSchema> {
  const init: MessageInitShape<typeof DlqFilterSchema> = {}
  if (filter.errorType !== undefined) init.errorType = filter.errorType
  if (filter.handlerRef !== undefined) init.handlerRef = filter.handlerRef
  if (filter.deadLetteredFrom !== undefined) {
    init.deadLetteredFrom = toTimestamp(filter.deadLetteredFrom, 'deadLetteredFrom')
  }
  if (filter.deadLetteredTo !== undefined) {
    init.deadLetteredTo = toTimestamp(filter.deadLetteredTo, 'deadLetteredTo')
  }
  return create(DlqFilterSchema, init)
}

function toSelectorMessage(selector: Selector): SelectorMessage {
  if ('ids' in selector) {
    return create(SelectorSchema, { selection: { case: 'ids', value: { ids: [...selector.ids] } } })
  }
  if ('filter' in selector) {
    return create(SelectorSchema, {
      selection: {
        case: 'filter',
        value: create(DlqFilterSchema, toFilterMessage(selector.filter)),
      },
    })
  }
  return create(SelectorSchema, { selection: { case: 'all', value: selector.all } })
}

function pageSize(options: ListOptions): { pageSize?: number } {
  return options.pageSize === undefined ? {} : { pageSize: options.pageSize }
}

function page<T>(items: T[], nextPageToken: string): Page<T> {
  return { items, nextPageToken: nextPageToken === '' ? undefined : nextPageToken }
}

function required<T>(value: T | undefined): T {
  if (value === undefined) {
    throw errorOf({ code: Code.INTERNAL, message: 'the answer is empty' })
  }
  return value
}
