/** Cuts what is to be sent into requests that a server reads. */

/** The bounds of one request. */
export interface BatchBounds {
  itemsMax: number
  bytesMax: number
}

/** Tasks of one `EnqueueBatch`. The contract takes 8 MiB; less than 4 MiB passes what stands before a server too. */
export const ENQUEUE_BOUNDS: BatchBounds = { itemsMax: 1_000, bytesMax: 3 * 1024 * 1024 }

/** What a repeated field adds to each message: its tag and its length. */
const FRAME_BYTES_MAX = 6

/** In order; an item that is too large alone has a batch alone. */
export function* cut<T>(
  items: Iterable<T>,
  sizeOf: (item: T) => number,
  bounds: BatchBounds,
): Generator<T[], void, undefined> {
  let batch: T[] = []
  let bytes = 0
  for (const item of items) {
    const size = sizeOf(item) + FRAME_BYTES_MAX
    if (batch.length > 0 && (batch.length >= bounds.itemsMax || bytes + size > bounds.bytesMax)) {
      yield batch
      batch = []
      bytes = 0
    }
    batch.push(item)
    bytes += size
  }
  if (batch.length > 0) {
    yield batch
  }
}
