-- A task's record: all of it but what is large. Rust reads the same layout.
--
-- What claims and their ends change comes first, then what an admission settles; a life that had more
-- than an admission and claims has a third part. Most tasks are handled in bulk by those who know
-- where in the record something is: they look at a few bytes, and put another first part before the
-- rest. Everybody else takes the record apart, the later parts only if they are needed (`warm`).

local HELD = '>BBi8i8c16c8Bc0' -- status, ending, due, claimed at, token, run, worker
local KEPT = '>c8i8c12BI4Bc0' -- page, created at, order, flags, weight, queue
local RECORD = '>BBi8i8c16c8Bc0c8i8c12BI4Bc0'
local TOKEN_AT, RUN_AT, WORKER_AT = 19, 35, 43
-- From the end of the worker's name on.
local ORDER_AFTER, FLAGS_AFTER, QUEUE_AFTER = 17, 29, 34
local SETTLED = '>i8i8i8Bc0' -- expires at, lease, retention, handler
local LIFE = '>i8i8Bi8I4I4I4I4I4I4I4I4I4I4I4I4I4I4c0'
local PENDING, IN_FLIGHT, SUCCEEDED, DEAD, CANCELLED = 0, 1, 2, 3, 4
-- How the newest claim ended: by one of the calls 1 to 5, or by somebody else.
local ENDING_NONE, ENDING_CANCELLED, ENDING_EXPIRED = 0, 6, 7
-- Flags: LIVED says that the third part is there.
local EXPIRES, FINAL_ERROR, LIVED, OWN_LEASE = 1, 2, 4, 8
local NO_TOKEN = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
-- In place of a run: the task stands by itself.
local ALONE = '\0\0\0\0\0\0\0\0'
local COUNT_MAX = 4294967295
local INSTANT_MIN, INSTANT_MAX = -62135596800000, 253402300799999

local function instant(at)
  return math.max(INSTANT_MIN, math.min(INSTANT_MAX, at))
end

-- An instant, or so long after now.
local function moment(tx, is_delay, value)
  return is_delay == 1 and instant(tx.now + value) or value
end

local function has(flags, flag)
  return flags % (2 * flag) >= flag
end

local function plus_one(count)
  return math.min(count + 1, COUNT_MAX)
end

local function unpack_record(id, packed)
  local status, ending, due, claimed_at, token, run, worker, page, created_at, order, flags, weight,
    queue, at = unpack_bytes(RECORD, packed)
  return {
    id = id, status = status, ending = ending, due = due, claimed_at = claimed_at,
    token = token, -- generation and nonce
    run = run, page = page, -- where it stands in its lane, and in the order of admissions
    worker = worker, created_at = created_at,
    order = order, -- priority, higher first, and admission, as keys of the index have them
    flags = flags,
    weight = weight, -- of the envelope, the progress and the result
    queue = queue, rest = sub(packed, at), packed = packed,
  }
end

-- Takes a record apart wholly, before something of its later parts is read or changed.
local function warm(r)
  if r.is_warm then return end
  r.is_warm = true
  local at
  r.expires_at, r.lease, r.retention, r.handler, at = unpack_bytes(SETTLED, r.rest)
  if has(r.flags, LIVED) then
    r.finished, r.finished_at, r.ending_status, r.ending_due, r.attempt_count, r.redrive_count,
      r.lease_expired_count, r.last_no, r.next, r.folds, r.history_bytes, r.shed_1, r.shed_2,
      r.shed_3, r.shed_4, r.progress_len, r.result_len, r.error_type =
      unpack_bytes(LIFE, r.rest, at)
    return
  end
  r.finished, r.finished_at, r.ending_status, r.ending_due, r.attempt_count = 0, 0, 0, 0, 0
  r.redrive_count, r.lease_expired_count, r.last_no, r.next, r.folds = 0, 0, 0, 0, 0
  r.history_bytes, r.shed_1, r.shed_2, r.shed_3, r.shed_4 = 0, 0, 0, 0, 0
  r.progress_len, r.result_len, r.error_type = 0, 0, ''
end

-- The record as it is stored from now on.
local function pack_record(r)
  if r.packed then return r.packed end
  if r.is_warm then
    if not has(r.flags, LIVED) then r.flags = r.flags + LIVED end
    r.rest = pack(
      SETTLED, r.expires_at, r.lease, r.retention, #r.handler, r.handler)
      .. pack(
        LIFE, r.finished, r.finished_at, r.ending_status, r.ending_due, r.attempt_count,
        r.redrive_count, r.lease_expired_count, r.last_no, r.next, r.folds, r.history_bytes,
        r.shed_1, r.shed_2, r.shed_3, r.shed_4, r.progress_len, r.result_len, #r.error_type,
        r.error_type)
  end
  r.packed = pack(
    RECORD, r.status, r.ending, r.due, r.claimed_at, r.token, r.run, #r.worker, r.worker, r.page,
    r.created_at, r.order, r.flags, r.weight, #r.queue, r.queue) .. r.rest
  return r.packed
end

-- Whoever changes a record says so.
local function touch_record(tx, r)
  r.packed = nil
  if not r.is_dirty then
    r.is_dirty = true
    tx.dirty[#tx.dirty + 1] = r
  end
end

-- Reads records that are not known yet, so that nobody asks for each.
local function fetch(tx, ids, from, to)
  local packed, unknown, count = tx.packed, {}, 0
  for at = from or 1, to or #ids do
    local id = ids[at]
    if packed[id] == nil then
      count = count + 1
      unknown[count] = id
    end
  end
  for first = 1, count, ARGUMENTS_MAX do
    local last = math.min(first + ARGUMENTS_MAX - 1, count)
    local found = call('HMGET', tx.keys.tasks, unpack(unknown, first, last))
    for at = 1, last - first + 1 do packed[unknown[first + at - 1]] = found[at] end
  end
end

-- The task's record; false if there is none.
local function find(tx, id)
  local r = tx.records[id]
  if r == nil then
    if tx.packed[id] == nil then fetch(tx, { id }) end
    local packed = tx.packed[id]
    r = packed and unpack_record(id, packed)
    tx.records[id] = r
  end
  return r
end

local function read(tx, key, field)
  local known = tx.fields[key][field]
  if known == nil then known = call('HGET', tx.keys[key], field) end
  return known or ''
end

local function progress_field(id) return id .. '\0p' end
local function result_field(id) return id .. '\0r' end

local function set_progress(tx, r, bytes)
  warm(r)
  tx.fields.bodies[progress_field(r.id)] = #bytes > 0 and bytes
  r.weight = r.weight - r.progress_len + #bytes
  r.progress_len = #bytes
end

local function set_result(tx, r, bytes)
  warm(r)
  tx.fields.bodies[result_field(r.id)] = #bytes > 0 and bytes
  r.weight = r.weight - r.result_len + #bytes
  r.result_len = #bytes
end
