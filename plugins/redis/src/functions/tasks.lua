-- A task's record: all of it but what is large or never changes. Rust reads the same layout.

local RECORD = '>BBBBBi8i4i8i8i8c8i8i8i8i8i8i8i8I4I4I4I4I4I4I4I4I4I4I4I4I4I4Bc0Bc0Bc0I4c0'
local VERSION = 1
local PENDING, IN_FLIGHT, SUCCEEDED, DEAD, CANCELLED = 0, 1, 2, 3, 4
-- How the newest claim ended: by one of the calls 1 to 5, or by somebody else.
local ENDING_NONE, ENDING_CANCELLED, ENDING_EXPIRED = 0, 6, 7
-- Flags.
local EXPIRES, FINAL_ERROR = 1, 2
local NO_NONCE = '\0\0\0\0\0\0\0\0'
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
  local r = { id = id }
  local version
  version, r.status, r.ending, r.ending_status, r.flags, r.ending_due, r.priority, r.admitted,
    r.finished, r.generation, r.nonce, r.due, r.claimed_at, r.expires_at, r.created_at,
    r.finished_at, r.lease, r.retention, r.attempt_count, r.redrive_count, r.lease_expired_count,
    r.last_no, r.next, r.folds, r.history_bytes, r.shed_1, r.shed_2, r.shed_3, r.shed_4,
    r.envelope_len, r.progress_len, r.result_len, r.queue, r.handler, r.worker, r.error_type =
    struct.unpack(RECORD, packed)
  if version ~= VERSION then error('RDQSCHEMA ' .. version, 0) end
  return r
end

local function pack_record(r)
  return struct.pack(
    RECORD, VERSION, r.status, r.ending, r.ending_status, r.flags, r.ending_due, r.priority,
    r.admitted, r.finished, r.generation, r.nonce, r.due, r.claimed_at, r.expires_at, r.created_at,
    r.finished_at, r.lease, r.retention, r.attempt_count, r.redrive_count, r.lease_expired_count,
    r.last_no, r.next, r.folds, r.history_bytes, r.shed_1, r.shed_2, r.shed_3, r.shed_4,
    r.envelope_len, r.progress_len, r.result_len, #r.queue, r.queue, #r.handler, r.handler,
    #r.worker, r.worker, #r.error_type, r.error_type)
end

-- Reads records that are not known yet, so that `find` need not ask for each.
local function fetch(tx, ids)
  local unknown = {}
  for _, id in ipairs(ids) do
    if tx.records[id] == nil then unknown[#unknown + 1] = id end
  end
  for first = 1, #unknown, ARGUMENTS_MAX do
    local last = math.min(first + ARGUMENTS_MAX - 1, #unknown)
    local packed = redis.call('HMGET', tx.keys[TASKS], unpack(unknown, first, last))
    for at, value in ipairs(packed) do
      local id = unknown[first + at - 1]
      tx.records[id] = value and unpack_record(id, value)
    end
  end
end

-- The task's record; false if there is none.
local function find(tx, id)
  if tx.records[id] == nil then fetch(tx, { id }) end
  return tx.records[id]
end

local function read(tx, key, field)
  local known = tx.writes[key][field]
  if known == nil then known = redis.call('HGET', tx.keys[key], field) end
  return known or ''
end

local function progress_field(id) return id .. '\0p' end
local function result_field(id) return id .. '\0r' end

local function set_progress(tx, r, bytes)
  tx.writes[BODIES][progress_field(r.id)] = #bytes > 0 and bytes
  r.progress_len = #bytes
end

local function set_result(tx, r, bytes)
  tx.writes[BODIES][result_field(r.id)] = #bytes > 0 and bytes
  r.result_len = #bytes
end
