/** Which contract this client speaks, and whether a server speaks it too. */

import { Code, OtherContractVersionError } from './errors.js'

/** `major.minor` of the contract that the stubs of this client are made from. */
export const CONTRACT_VERSION = '1.1'

/** What is wrong with a server of this version of the contract; undefined if nothing is. */
export function contractErrorOf(serverVersion: string): OtherContractVersionError | undefined {
  if (majorOf(serverVersion) === majorOf(CONTRACT_VERSION)) {
    return undefined
  }
  return new OtherContractVersionError({
    code: Code.FAILED_PRECONDITION,
    reason: 'OTHER_CONTRACT_VERSION',
    message: `the server speaks version ${JSON.stringify(serverVersion)} of the contract, this client ${CONTRACT_VERSION}`,
    metadata: { client_version: CONTRACT_VERSION, server_version: serverVersion },
  })
}

function majorOf(version: string): string | undefined {
  return version.split('.')[0]
}
