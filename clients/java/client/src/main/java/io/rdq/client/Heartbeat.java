package io.rdq.client;

import io.rdq.v1.ExtendLeaseRequest;

/**
 * One extension of a lease.
 *
 * @param claim whose lease it is
 * @param request what is sent
 * @param progressNumber up to which of the claim's settings of progress it carries
 */
record Heartbeat(HeldClaim claim, ExtendLeaseRequest request, long progressNumber) {}
