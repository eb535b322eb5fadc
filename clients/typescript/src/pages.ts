/** Lists that come a page at a time. */

/** A page of a list. */
export interface Page<T> {
  items: T[]
  /** Names the next page; unset on the last. */
  nextPageToken: string | undefined
}

/** A list: iterate over all its items, over its pages, or ask for one page. Nothing is asked before that. */
export class Pages<T> implements AsyncIterable<T> {
  readonly #fetch: (pageToken: string) => Promise<Page<T>>

  /** @internal */
  constructor(fetch: (pageToken: string) => Promise<Page<T>>) {
    this.#fetch = fetch
  }

  /** One page: the first, or the one that a token of the page before names. */
  page(pageToken = ''): Promise<Page<T>> {
    return this.#fetch(pageToken)
  }

  /** All pages, in order. */
  async *pages(): AsyncGenerator<Page<T>, void, undefined> {
    let pageToken: string | undefined = ''
    do {
      const page: Page<T> = await this.#fetch(pageToken)
      yield page
      pageToken = page.nextPageToken
    } while (pageToken !== undefined)
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const page of this.pages()) {
      yield* page.items
    }
  }

  /** All items at once. */
  async toArray(): Promise<T[]> {
    const all: T[] = []
    for await (const item of this) {
      all.push(item)
    }
    return all
  }
}
