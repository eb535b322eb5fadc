-- Admission of tasks. They come in stretches of one kind: plain ones, which are due at once and begin
-- their life here, of one queue and one priority; and those that have more to say, one at a time.

local STRETCH = '>BI4c4Bc0' -- kind, how many arguments follow, priority, queue
local PLAIN = 0
-- What most tasks do not have: a due time, an expiry, a creation, and a life before. It precedes the
-- end of a record.
local SPECIAL = '>Bi8Bi8Bi8I4I4I4I4I4I4I4I4c0'
local CREATED, EXISTS, CONFLICT = 1, 2, 3

-- The answer for a task that is there.
local function known_answer(tx, id, queue)
  local known = find(tx, id)
  return string.char(known.queue == queue and EXISTS + 10 * known.status or CONFLICT)
end

-- Enters plain tasks in their places, together if they are many, and packs their records.
local function store_plain(tx, queue, priority, ids, tails, admitted)
  local stored, count = tx.stored, #ids
  local at = #stored
  local created = pack('>i8', tx.now)
  local pages, ready = lane_of(queue, ADMITTED), lane_of(queue, READY) .. priority .. time_key(tx.now)
  for first = 1, count, RUN_MAX do
    local last = math.min(first + RUN_MAX - 1, count)
    local page, run = ALONE, ALONE
    if count >= RUN_MIN then
      page = add_run(tx, ids, first, last, admitted[first])
      run = add_run(tx, ids, first, last, admitted[first])
      enter(tx, pages .. admitted[first] .. '\0' .. page)
      enter(tx, ready .. admitted[first] .. '\0' .. run)
    end
    local head = pack(HELD, PENDING, ENDING_NONE, tx.now, 0, NO_TOKEN, run, 0, '')
      .. page .. created .. priority
    for n = first, last do
      local id, key = ids[n], admitted[n]
      if run == ALONE then
        enter(tx, pages .. key .. id)
        enter(tx, ready .. key .. id)
      end
      stored[at + 1], stored[at + 2] = id, head .. key .. tails[n]
      at = at + 2
    end
  end
  tally(tx, queue, READY, count)
  news(tx, queue, tx.now)
end

-- Admits a stretch of plain tasks, each with its id, the end of its record, and its body.
local function admit_plain(tx, args, from, to, queue, priority, answers)
  local ids, tails, admitted, new = {}, {}, {}, 0
  local packed, bodies, answer = tx.packed, tx.bodies, #answers
  local body = #bodies
  -- One that is admitted here is there for those behind it.
  local here = { queue = queue, status = PENDING }
  for n = from, to, 3 do
    local id = args[n]
    answer = answer + 1
    if packed[id] then
      answers[answer] = known_answer(tx, id, queue)
    else
      new = new + 1
      tx.admitted = tx.admitted + 1
      ids[new], tails[new], admitted[new] = id, args[n + 1], number_key(tx.admitted)
      packed[id], tx.records[id] = true, here
      bodies[body + 1], bodies[body + 2] = id, args[n + 2]
      body = body + 2
      answers[answer] = '\1' -- CREATED, PENDING
    end
  end
  if new > 0 then store_plain(tx, queue, priority, ids, tails, admitted) end
end

-- A task that is not plain.
local function read_special(tx, id, tail, queue, priority)
  local r = {
    id = id, status = PENDING, ending = ENDING_NONE, claimed_at = 0, token = NO_TOKEN, run = ALONE,
    page = ALONE, worker = '', order = priority, queue = queue, is_warm = true,
  }
  local due_is_delay, due, expiry, expires, has_created, created, at
  due_is_delay, due, expiry, expires, has_created, created, r.attempt_count, r.redrive_count,
    r.lease_expired_count, r.last_no, r.next, r.history_bytes, r.progress_len, r.error_type, at =
    unpack_bytes(SPECIAL, tail)
  local _
  r.flags, r.weight, _, at = unpack_bytes('>BI4Bc0', tail, at)
  r.expires_at, r.lease, r.retention, r.handler = unpack_bytes(SETTLED, tail, at)
  r.created_at, r.due = tx.now, moment(tx, due_is_delay, due)
  if has_created == 1 then r.created_at = created end
  if expiry > 0 then r.expires_at = moment(tx, expiry - 1, expires) end
  r.finished, r.finished_at, r.ending_status, r.ending_due, r.folds = 0, 0, 0, 0, 0
  r.shed_1, r.shed_2, r.shed_3, r.shed_4, r.result_len = 0, 0, 0, 0, 0
  return r
end

-- Admits a task that is not plain: the same three arguments, its progress, and the records of its
-- history, each light and heavy.
local function admit_special(tx, args, at, queue, priority, answers)
  local r = read_special(tx, args[at], args[at + 1], queue, priority)
  if tx.packed[r.id] then
    answers[#answers + 1] = known_answer(tx, r.id, queue)
    return
  end
  tx.admitted = tx.admitted + 1
  r.order = priority .. number_key(tx.admitted)
  tx.packed[r.id], tx.records[r.id] = true, r
  tx.fields.bodies[r.id] = args[at + 2]
  if r.progress_len > 0 then tx.fields.bodies[progress_field(r.id)] = args[at + 3] end
  for ordinal = 0, r.next - 1 do
    local light, heavy = args[at + 4 + 2 * ordinal], args[at + 5 + 2 * ordinal]
    tx.fields.history[light_field(r.id, ordinal)] = light
    if #heavy > 0 then tx.fields.history[heavy_field(r.id, ordinal)] = heavy end
  end
  enter(tx, lane_of(queue, ADMITTED) .. admission_key(r) .. r.id)
  place(tx, r)
  touch_record(tx, r)
  answers[#answers + 1] = '\1'
end

-- The stretch that begins there; its ids are added to these.
local function read_stretch(args, at, ids)
  local kind, len, priority, queue = unpack_bytes(STRETCH, args[at])
  local from, to, count = at + 1, at + len, #ids
  for n = from, kind == PLAIN and to or from, 3 do
    count = count + 1
    ids[count] = args[n]
  end
  return { kind = kind, from = from, to = to, priority = priority, queue = queue }
end

local function admit_stretch(tx, args, it, answers)
  if it.kind == PLAIN then
    admit_plain(tx, args, it.from, it.to, it.queue, it.priority, answers)
  else
    admit_special(tx, args, it.from, it.queue, it.priority, answers)
  end
end

parts_of_commits.read_stretch, parts_of_commits.admit_stretch = read_stretch, admit_stretch

local function enqueue(keys, args)
  local tx = begin(keys)
  local stretches, ids, at, last = {}, {}, 1, #args
  while at <= last do
    local it = read_stretch(args, at, ids)
    stretches[#stretches + 1] = it
    at = it.to + 1
  end
  fetch(tx, ids)
  local answers = {}
  for _, it in ipairs(stretches) do admit_stretch(tx, args, it, answers) end
  finish(tx)
  return concat(answers)
end

register('enqueue', enqueue, NEEDS_SPACE)
