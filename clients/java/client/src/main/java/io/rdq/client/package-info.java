/**
 * The client of rdq, a durable task, retry and coordination service. Begin with {@link
 * io.rdq.client.RdqClient}.
 */
package io.rdq.client;
