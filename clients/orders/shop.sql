-- The shop's own tables, in the database that the rdq server has its schema in.

CREATE TABLE orders (
    id text PRIMARY KEY,
    cents bigint NOT NULL
);

-- What was charged, once an order: the ledger by which the worker knows what it did before.
CREATE TABLE charges (
    order_id text PRIMARY KEY REFERENCES orders,
    cents bigint NOT NULL
);

-- What a charge adds to, and would add to twice without the ledger.
CREATE TABLE revenue (cents bigint NOT NULL);
INSERT INTO revenue VALUES (0);

CREATE TABLE invoices (
    order_id text PRIMARY KEY REFERENCES orders,
    event_offset bigint NOT NULL
);
