/** What a server says of single tasks only when its storage is busy, said by one that always is, at first. */

import assert from 'node:assert/strict'
import test from 'node:test'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { Server, ServerCredentials, type sendUnaryData, type ServerUnaryCall } from '@grpc/grpc-js'
import { RdqClient } from '../src/index.js'
import {
  EnqueueBatchRequestSchema,
  type EnqueueBatchRequest,
  EnqueueBatchResponseSchema,
  ErrorReason,
} from '../src/proto.js'
import { Code } from '../src/errors.js'

void test('tasks of many that are refused for now are sent again, alone', async () => {
  const requests: string[][] = []
  const answer = ({ tasks }: EnqueueBatchRequest) => {
    requests.push(tasks.map(({ id }) => id))
    return Buffer.from(
      toBinary(
        EnqueueBatchResponseSchema,
        create(EnqueueBatchResponseSchema, {
          results: tasks.map(({ id }) => ({
            outcome:
              id === 'busy' && requests.length < 3
                ? {
                    case: 'error' as const,
                    value: { code: Code.ABORTED, reason: ErrorReason.CONTENTION },
                  }
                : id === 'wrong'
                  ? {
                      case: 'error' as const,
                      value: {
                        code: Code.INVALID_ARGUMENT,
                        reason: ErrorReason.INVALID_ARGUMENT,
                      },
                    }
                  : { case: 'enqueued' as const, value: { id, created: true } },
          })),
        }),
      ),
    )
  }
  const server = new Server()
  server.addService(
    {
      enqueueBatch: {
        path: '/rdq.v1.TaskService/EnqueueBatch',
        requestStream: false,
        responseStream: false,
        requestSerialize: (bytes: Buffer) => bytes,
        requestDeserialize: (bytes: Buffer) => bytes,
        responseSerialize: (bytes: Buffer) => bytes,
        responseDeserialize: (bytes: Buffer) => bytes,
      },
    },
    {
      enqueueBatch: (call: ServerUnaryCall<Buffer, Buffer>, send: sendUnaryData<Buffer>) => {
        send(null, answer(fromBinary(EnqueueBatchRequestSchema, call.request)))
      },
    },
  )
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) => {
      if (error === null) resolve(bound)
      else reject(error)
    })
  })
  try {
    await using client = new RdqClient(`127.0.0.1:${String(port)}`)
    const ids = ['first', 'busy', 'wrong']
    const results = await client.enqueueMany(ids.map((id) => ({ queue: 'q', handlerRef: 'h', id })))
    assert.deepEqual(
      results.map(({ ok, id }) => [id, ok]),
      [
        ['first', true],
        ['busy', true],
        ['wrong', false],
      ],
    )
    assert.deepEqual(requests, [ids, ['busy'], ['busy']])
  } finally {
    server.forceShutdown()
  }
})
