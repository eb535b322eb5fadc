/** When to try again: full jitter, so that many who failed together do not come back together. */

/** Between zero and a bound that doubles with each failure. */
export class Backoff {
  #failures = 0

  constructor(
    private readonly firstMs: number,
    private readonly maxMs: number,
    private readonly random: () => number = Math.random,
  ) {}

  /** Milliseconds to wait after one more failure. */
  nextMs(): number {
    const doublings = Math.min(this.#failures, 30) // beyond that the bound has long won
    this.#failures += 1
    return this.random() * Math.min(this.maxMs, this.firstMs * 2 ** doublings)
  }

  /** Back to the start. */
  reset(): void {
    this.#failures = 0
  }
}
