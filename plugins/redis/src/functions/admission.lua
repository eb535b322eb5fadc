-- Admission of tasks.

local NEW = '>i4Bi8Bi8Bi8i8i8I4I4I4I4I4I4BI4Bc0Bc0Bc0I4c0'
local CREATED, EXISTS, CONFLICT = 1, 2, 3

-- Reads a task to admit from the arguments: the record, the body, the progress, then the records of
-- its history, each light and heavy.
local function read_new(tx, args, at)
  local r = {}
  local due_is_delay, due, expiry, expires, has_created, created, has_error
  r.priority, due_is_delay, due, expiry, expires, has_created, created, r.lease, r.retention,
    r.attempt_count, r.redrive_count, r.lease_expired_count, r.last_no, r.next, r.history_bytes,
    has_error, r.envelope_len, r.id, r.queue, r.handler, r.error_type = struct.unpack(NEW, args[at])
  r.status, r.ending, r.ending_status, r.ending_due, r.flags = PENDING, ENDING_NONE, 0, 0, 0
  r.finished, r.generation, r.nonce, r.claimed_at, r.finished_at = 0, 0, NO_NONCE, 0, 0
  r.folds, r.shed_1, r.shed_2, r.shed_3, r.shed_4 = 0, 0, 0, 0, 0
  r.progress_len, r.result_len, r.worker, r.expires_at = 0, 0, '', 0
  r.due = moment(tx, due_is_delay, due)
  r.created_at = has_created == 1 and created or tx.now
  if has_error == 1 then r.flags = FINAL_ERROR end
  if expiry > 0 then
    r.flags = r.flags + EXPIRES
    r.expires_at = moment(tx, expiry - 1, expires)
  end
  return { record = r, body = args[at + 1], progress = args[at + 2], history = at + 3 },
    at + 3 + 2 * r.next
end

local function admit(tx, new, args)
  local r = new.record
  local known = find(tx, r.id)
  if known then
    return known.queue == r.queue and EXISTS + 10 * known.status or CONFLICT
  end
  tx.admitted = tx.admitted + 1
  r.admitted = tx.admitted
  tx.writes[BODIES][r.id] = new.body
  if #new.progress > 0 then set_progress(tx, r, new.progress) end
  for ordinal = 0, r.next - 1 do
    local light, heavy = args[new.history + 2 * ordinal], args[new.history + 2 * ordinal + 1]
    tx.writes[HISTORY][light_field(r.id, ordinal)] = light
    if #heavy > 0 then tx.writes[HISTORY][heavy_field(r.id, ordinal)] = heavy end
  end
  insert(tx, r)
  return CREATED + 10 * PENDING
end

local function enqueue(keys, args)
  local tx = begin(keys)
  local tasks, ids, at = {}, {}, 1
  while at <= #args do
    local new
    new, at = read_new(tx, args, at)
    tasks[#tasks + 1], ids[#ids + 1] = new, new.record.id
  end
  fetch(tx, ids)
  local answers = {}
  for _, new in ipairs(tasks) do answers[#answers + 1] = admit(tx, new, args) end
  finish(tx)
  return answers
end

register('enqueue', enqueue, NEEDS_SPACE)
