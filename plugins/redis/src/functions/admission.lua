-- Admission of tasks.

local NEW = '>BBc4I4Bc0'
-- What most tasks do not have: a due time, an expiry, a creation, and a life before.
local SPECIAL = '>Bi8Bi8Bi8I4I4I4I4I4I4I4I4c0'
local PLAIN = 0
local CREATED, EXISTS, CONFLICT = 1, 2, 3

-- The later parts of a task that is not plain, from byte `at` on of its arguments; the second answer
-- is where they end.
local function read_special(tx, r, head, at)
  local due_is_delay, due, expiry, expires, has_created, created
  r.finished, r.finished_at, r.ending_status, r.ending_due, r.folds = 0, 0, 0, 0, 0
  r.shed_1, r.shed_2, r.shed_3, r.shed_4, r.result_len = 0, 0, 0, 0, 0
  due_is_delay, due, expiry, expires, has_created, created, r.attempt_count, r.redrive_count,
    r.lease_expired_count, r.last_no, r.next, r.history_bytes, r.progress_len, r.error_type, at =
    struct.unpack(SPECIAL, head, at)
  r.created_at, r.expires_at, r.due = tx.now, 0, moment(tx, due_is_delay, due)
  if has_created == 1 then r.created_at = created end
  if expiry > 0 then r.expires_at = moment(tx, expiry - 1, expires) end
  r.lease, r.retention, r.handler = struct.unpack('>i8i8Bc0', head, at)
  r.is_warm = true
end

-- Reads a task to admit from the arguments: its id, the rest of the record, the body; and if it is
-- not plain, the progress and the records of its history, each light and heavy. The second answer
-- is where the next one begins.
local function read_new(tx, args, at, settled)
  local head = args[at + 1]
  local kind, flags, priority, weight, queue, rest = struct.unpack(NEW, head)
  local r = {
    id = args[at], status = PENDING, ending = ENDING_NONE, flags = flags, due = tx.now,
    order = priority, token = NO_TOKEN, page = ALONE, run = ALONE, claimed_at = 0,
    weight = weight, queue = queue, worker = '', rest = false,
  }
  if kind == PLAIN then
    -- Created now, and it does not expire.
    r.rest = settled .. string.sub(head, rest)
    return r, at + 3
  end
  read_special(tx, r, head, rest)
  return r, at + 4 + 2 * r.next
end

local function store_special(tx, r, args, at)
  local progress = args[at]
  if #progress > 0 then tx.fields[BODIES][progress_field(r.id)] = progress end
  for ordinal = 0, r.next - 1 do
    local light = args[at + 1 + 2 * ordinal]
    local heavy = args[at + 2 + 2 * ordinal]
    tx.fields[HISTORY][light_field(r.id, ordinal)] = light
    if #heavy > 0 then tx.fields[HISTORY][heavy_field(r.id, ordinal)] = heavy end
  end
end

-- Tasks of one queue and, if they are to be claimed side by side, of one priority and due time.
local function group_of(groups, key)
  local group = groups[key]
  if not group then
    group = {}
    groups[key] = group
    groups[#groups + 1] = group
  end
  return group
end

-- Enters new tasks in their places, those of a batch together.
local function place_new(tx, admitted)
  local pages, ready = {}, {}
  local queue, priority, due, page, group
  for _, r in ipairs(admitted) do
    local prefix = string.sub(r.order, 1, 4)
    if r.queue ~= queue then page = group_of(pages, r.queue .. '\0') end
    page[#page + 1] = r
    if r.due > tx.now then
      place(tx, r)
    else
      if r.queue ~= queue or prefix ~= priority or r.due ~= due then
        group = group_of(ready, r.queue .. '\0' .. prefix .. time_key(r.due))
        priority, due = prefix, r.due
      end
      group[#group + 1] = r
      mark_expiring(tx, r, true)
    end
    queue = r.queue
  end
  for _, of_queue in ipairs(pages) do
    enter_together(tx, of_queue, ADMITTED, 'page', admission_key)
  end
  for _, together in ipairs(ready) do
    enter_together(tx, together, READY, 'run', order_key)
    tally(tx, together[1].queue, READY, #together)
    news(tx, together[1].queue, tx.now)
  end
end

local function enqueue(keys, args)
  local tx = begin(keys)
  local tasks, ids, starts, at, count = {}, {}, {}, 1, 0
  local settled = struct.pack('>i8i8', tx.now, 0)
  local last = #args
  while at <= last do
    count = count + 1
    ids[count], starts[count] = args[at], at
    tasks[count], at = read_new(tx, args, at, settled)
  end
  fetch(tx, ids)
  local answers, admitted, bodies = {}, {}, tx.bodies
  for n, r in ipairs(tasks) do
    local known = tx.records[r.id]
    if known then
      answers[n] = string.char(known.queue == r.queue and EXISTS + 10 * known.status or CONFLICT)
    else
      tx.admitted = tx.admitted + 1
      r.order = r.order .. number_key(tx.admitted)
      tx.records[r.id] = r
      local stored = #admitted
      bodies[2 * stored + 1], bodies[2 * stored + 2] = r.id, args[starts[n] + 2]
      if r.is_warm then store_special(tx, r, args, starts[n] + 3) end
      admitted[stored + 1] = r
      answers[n] = '\1' -- CREATED, PENDING
      touch_record(tx, r)
    end
  end
  place_new(tx, admitted)
  finish(tx)
  return table.concat(answers)
end

register('enqueue', enqueue, NEEDS_SPACE)
