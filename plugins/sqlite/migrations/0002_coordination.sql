-- Signals, streams, locks and records. Names and keys compare by their bytes. Of tasks, `claimed_by`
-- stays after the claim's end from now on.

-- A stream exists from its first event or saved offset on, for ever: so does its counter.
CREATE TABLE streams (
    stream INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- The last offset that an event got. It only grows, also when all events are gone.
    last INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE events (
    -- Any number: events stand in the table as they came, whatever their stream.
    event INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    -- NULL: it has none. Text, but it may hold zeroes.
    key BLOB,
    payload BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_place ON events (stream, offset);

-- What consumers saved.
CREATE TABLE offsets (
    stream INTEGER NOT NULL REFERENCES streams,
    consumer TEXT NOT NULL,
    offset INTEGER NOT NULL,
    PRIMARY KEY (stream, consumer)
) STRICT, WITHOUT ROWID;

-- The newest notification of each channel, for other processes on the file. One that is a minute old
-- has been seen by whoever still looks, and goes.
CREATE TABLE notifications (
    -- From `state.seq`: grows for ever, so that who knows one number finds all that came after it.
    number INTEGER PRIMARY KEY,
    channel TEXT NOT NULL UNIQUE,
    notified_at INTEGER NOT NULL
) STRICT;

-- Notifications up to this number may be gone.
ALTER TABLE state ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;

-- A lock's row stays after its release, and its generation with it.
CREATE TABLE locks (
    name TEXT PRIMARY KEY,
    -- Of the last hold.
    generation INTEGER NOT NULL,
    -- NULL: it was released.
    owner TEXT,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A record's row stays after its removal, and its revision with it.
CREATE TABLE records (
    record INTEGER PRIMARY KEY,
    space TEXT NOT NULL,
    key BLOB NOT NULL,
    -- Of the last value.
    revision INTEGER NOT NULL,
    -- From `state.seq`, when it came into being: what is newer than a list never enters it. NULL: it
    -- was removed.
    made INTEGER,
    updated_at INTEGER NOT NULL,
    value BLOB,
    UNIQUE (space, key)
) STRICT;

-- Those that lists show.
CREATE INDEX records_there ON records (space, key) WHERE made IS NOT NULL;
