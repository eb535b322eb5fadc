-- A task's record: all of it but what is large. Rust reads the same layout.
--
-- It has three parts. What every transition looks at comes first; what admission settles follows;
-- a life that had more than an admission and claims has the third. The later two are taken apart
-- only by those who need them (`warm`), and go along as they are with everybody else.

local HOT = '>BBBi8c12c16c8c8i8I4Bc0Bc0'
local SETTLED = '>i8i8i8i8Bc0'
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
  local status, ending, flags, due, order, token, page, run, claimed_at, weight, queue, worker, at =
    struct.unpack(HOT, packed)
  return {
    id = id, status = status, ending = ending, flags = flags, due = due,
    order = order, -- priority, higher first, and admission, as keys of the index have them
    token = token, -- generation and nonce
    page = page, run = run, -- where it stands in the order of admissions, and in its lane
    claimed_at = claimed_at,
    weight = weight, -- of the envelope, the progress and the result
    queue = queue, worker = worker, rest = string.sub(packed, at), packed = packed,
  }
end

-- Takes a record apart wholly, before something of its later parts is read or changed.
local function warm(r)
  if r.is_warm then return end
  r.is_warm = true
  local at
  r.created_at, r.expires_at, r.lease, r.retention, r.handler, at = struct.unpack(SETTLED, r.rest)
  if has(r.flags, LIVED) then
    r.finished, r.finished_at, r.ending_status, r.ending_due, r.attempt_count, r.redrive_count,
      r.lease_expired_count, r.last_no, r.next, r.folds, r.history_bytes, r.shed_1, r.shed_2,
      r.shed_3, r.shed_4, r.progress_len, r.result_len, r.error_type =
      struct.unpack(LIFE, r.rest, at)
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
    r.rest = struct.pack(
      SETTLED, r.created_at, r.expires_at, r.lease, r.retention, #r.handler, r.handler)
      .. struct.pack(
        LIFE, r.finished, r.finished_at, r.ending_status, r.ending_due, r.attempt_count,
        r.redrive_count, r.lease_expired_count, r.last_no, r.next, r.folds, r.history_bytes,
        r.shed_1, r.shed_2, r.shed_3, r.shed_4, r.progress_len, r.result_len, #r.error_type,
        r.error_type)
  end
  r.packed = struct.pack(
    HOT, r.status, r.ending, r.flags, r.due, r.order, r.token, r.page, r.run, r.claimed_at,
    r.weight, #r.queue, r.queue, #r.worker, r.worker) .. r.rest
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

-- Reads records that are not known yet, so that `find` need not ask for each.
local function fetch(tx, ids, from, to)
  local records, unknown, count = tx.records, {}, 0
  for at = from or 1, to or #ids do
    local id = ids[at]
    if records[id] == nil then
      count = count + 1
      unknown[count] = id
    end
  end
  for first = 1, count, ARGUMENTS_MAX do
    local last = math.min(first + ARGUMENTS_MAX - 1, count)
    local packed = redis.call('HMGET', tx.keys[TASKS], unpack(unknown, first, last))
    for at, value in ipairs(packed) do
      local id = unknown[first + at - 1]
      records[id] = value and unpack_record(id, value)
    end
  end
end

-- The task's record; false if there is none.
local function find(tx, id)
  if tx.records[id] == nil then fetch(tx, { id }) end
  return tx.records[id]
end

local function read(tx, key, field)
  local known = tx.fields[key][field]
  if known == nil then known = redis.call('HGET', tx.keys[key], field) end
  return known or ''
end

local function progress_field(id) return id .. '\0p' end
local function result_field(id) return id .. '\0r' end

local function set_progress(tx, r, bytes)
  warm(r)
  tx.fields[BODIES][progress_field(r.id)] = #bytes > 0 and bytes
  r.weight = r.weight - r.progress_len + #bytes
  r.progress_len = #bytes
end

local function set_result(tx, r, bytes)
  warm(r)
  tx.fields[BODIES][result_field(r.id)] = #bytes > 0 and bytes
  r.weight = r.weight - r.result_len + #bytes
  r.result_len = #bytes
end
