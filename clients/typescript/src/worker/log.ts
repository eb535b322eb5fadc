/** Where a worker says what happens to it. Payloads, results and the values of headers are never among it. */

/** A logger, such as pino's with its arguments turned around, or one of the caller's own. */
export interface Logger {
  debug(message: string, fields: Readonly<Record<string, unknown>>): void
  info(message: string, fields: Readonly<Record<string, unknown>>): void
  warn(message: string, fields: Readonly<Record<string, unknown>>): void
  error(message: string, fields: Readonly<Record<string, unknown>>): void
}

const nothing = () => undefined

/** Warnings and errors, to standard error. */
export const consoleLogger: Logger = {
  debug: nothing,
  info: nothing,
  warn: (message, fields) => {
    console.warn(`rdq: ${message}`, fields)
  },
  error: (message, fields) => {
    console.error(`rdq: ${message}`, fields)
  },
}
